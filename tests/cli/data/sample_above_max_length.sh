. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 12
train max_length=20
