. "$SOURCE/tests/cli/kit.sh"
make_model
echo "{\"question\": \"a\", \"answer\": \"b\"}" >data.jsonl
train
