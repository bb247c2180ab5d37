. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
write_tensors model/model.safetensors "{\"a\": {\"dtype\": \"F32\", \"shape\": [3], \"data_offsets\": [0, 8]}}" 8
error_of train
