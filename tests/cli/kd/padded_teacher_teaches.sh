. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
sed 's/"vocab_size": [0-9]*/"vocab_size": 320/' model/config.json >large.json
ebb init large.json teacher seed=5 >/dev/null
ebb kd model=model teacher=teacher dataset=data.jsonl output_dir=run threads=1 max_steps=2 use_peft=true 2>&1 | steady |
    grep -E '^(teacher|loss|step)'
