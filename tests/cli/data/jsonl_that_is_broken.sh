. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
echo "{\"prompt\": \"a\", \"completion\" \"b\"}" >>data.jsonl
train
