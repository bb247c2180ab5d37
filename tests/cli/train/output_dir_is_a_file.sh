. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
touch run
train max_steps=1
