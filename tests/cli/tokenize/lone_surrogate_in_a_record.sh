ebb init tiny-llama model --tokenizer bytes >/dev/null
printf "{\"text\": \"fine\"}\n{\"text\": \"a\\\\ud800b\"}\n" >data.jsonl
cat data.jsonl
ebb eval model=model dataset=data.jsonl
