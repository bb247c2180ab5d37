. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 2
echo "{\"prompt\": \"a\", \"completion\": 7}" >>data.jsonl
train
