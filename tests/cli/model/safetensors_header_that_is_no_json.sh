. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
write_tensors model/model.safetensors "{\"a\": " 0
error_of train
