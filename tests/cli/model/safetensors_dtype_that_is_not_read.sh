. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
LC_ALL=C sed -i "s/\"dtype\": \"F32\"/\"dtype\": \"F64\"/" model/model.safetensors
error_of train
