. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 2
printf "{\"prompt\": \"\", \"completion\": \"%05000d\"}\n" 0 >>data.jsonl
train
