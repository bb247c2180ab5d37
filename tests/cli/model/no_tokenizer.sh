. "$SOURCE/tests/cli/kit.sh"
make_model
rm model/tokenizer.json
printf '{"text": "a"}\n' >data.jsonl
train
