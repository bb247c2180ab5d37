. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 8
train use_peft=true max_steps=4 save_strategy=steps save_steps=2 >/dev/null 2>&1
train use_peft=true max_steps=4 save_strategy=steps save_steps=2 resume_from_checkpoint=run/checkpoint-2 2>&1 |
    grep -E "warning|going on"
