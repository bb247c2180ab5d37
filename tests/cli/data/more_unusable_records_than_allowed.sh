. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 6
echo "{\"prompt\": \"a\", \"answer\": \"b\"}" >>data.jsonl
echo "{\"prompt\": \"a\"" >>data.jsonl
train max_bad_records=1
