. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
train use_peft=true max_steps=1 >/dev/null 2>&1
train use_peft=true max_steps=1 output_dir=other >/dev/null 2>&1
train use_peft=true max_steps=2 output_dir=other resume_from_checkpoint=run/checkpoint-1
