. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
rm model/model.safetensors
error_of train
