. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 3
train max_length=4 overlong=drop
