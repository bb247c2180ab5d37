. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 8
train use_peft=true max_steps=4 save_strategy=steps save_steps=2 >/dev/null 2>&1
sed -i 's/"data_time": "[^"]*"/"data_time": "2026-13-01"/' run/checkpoint-2/trainer_state.json
error_of train use_peft=true max_steps=4 save_strategy=steps save_steps=2 resume_from_checkpoint=run/checkpoint-2
