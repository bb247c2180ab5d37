. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 6
echo "{\"prompt\": \"a\", \"answer\": \"b\"}" >>data.jsonl
echo "{\"prompt\": \"a\"" >>data.jsonl
printf "{\"prompt\": \"caf\351\", \"completion\": \"b\"}\n" >>data.jsonl
echo "{\"prompt\": \"a\", \"completion\": 7}" >>data.jsonl
ebb sft model=model dataset=data.jsonl output_dir=run threads=1 max_steps=1 max_bad_records=4 2>&1 |
    grep -E -A3 "^(data|ebb: warning)"
