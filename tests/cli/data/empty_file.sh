. "$SOURCE/tests/cli/kit.sh"
make_model
: >data.jsonl
train
