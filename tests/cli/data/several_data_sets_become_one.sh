. "$SOURCE/tests/cli/kit.sh"
make_model; make_data a.jsonl 4
printf "{\"story\": \"one\"}\n{\"story\": \"two\"}\n" >b.jsonl
ebb sft model=model "datasets=[{path: a.jsonl}, {path: b.jsonl, text_field: story, weight: 2.5}]" \
    output_dir=run threads=1 max_steps=1 2>&1 | grep -E "^(a.jsonl|data|ebb: warning)"
