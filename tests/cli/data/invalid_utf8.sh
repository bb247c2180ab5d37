. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 2
printf "{\"prompt\": \"caf\351\", \"completion\": \"b\"}\n" >>data.jsonl
train
