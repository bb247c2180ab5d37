. "$SOURCE/tests/cli/kit.sh"
make_model
make_data data.jsonl 20
train max_steps=4 eval_strategy=steps eval_steps=2 validation_split=0.1 eval_prompts='["what is 7?", "what is"]' \
    eval_max_new_tokens=4 2>&1 | grep '^sample ' | sed 's/->.*/->/'
sed -n 's/"text": "[^"]*"/"text"/g; s/"ended": [a-z]*/"ended"/g; /samples/p' run/metrics.jsonl
# The same run without them ends with the same weights.
train max_steps=4 eval_strategy=steps eval_steps=2 validation_split=0.1 output_dir=without >/dev/null 2>&1
cmp run/model.safetensors without/model.safetensors && echo same
