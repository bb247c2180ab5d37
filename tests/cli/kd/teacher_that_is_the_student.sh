. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 8
ebb kd model=model teacher=model dataset=data.jsonl eval_dataset=data.jsonl eval_strategy=steps eval_steps=2 \
    output_dir=run threads=1 max_steps=2 kd_ratio=1 kd_loss=jsd >/dev/null 2>&1
grep -oE '"(eval_)?(loss|kd_loss|grad_norm)": [^,]*' run/metrics.jsonl
cmp model/model.safetensors run/model.safetensors && echo "nothing was learned"
