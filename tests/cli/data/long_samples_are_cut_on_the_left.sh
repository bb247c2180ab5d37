. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 12
ebb sft model=model dataset=data.jsonl output_dir=run threads=1 max_length=20 overlong=truncate \
    truncation_side=left max_steps=1 2>&1 | grep -E "^(data|ebb: warning)"
