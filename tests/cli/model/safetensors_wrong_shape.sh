. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
sed -i "s/\"intermediate_size\": [0-9]*/\"intermediate_size\": 96/" model/config.json
error_of train
