. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
LC_ALL=C sed -i "s/\"model.norm.weight\"/\"model.morn.weight\"/" model/model.safetensors
error_of train
