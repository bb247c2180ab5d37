. "$SOURCE/tests/cli/kit.sh"
make_model; make_pairs pairs.jsonl 2
sed 's/"vocab_size": [0-9]*/"vocab_size": 256/' model/config.json >small.json
ebb init small.json small >/dev/null 2>&1
error_of prefer ref_model_name_or_path=small 2>&1 | grep -v warning >&2
ebb init tiny-llama other --tokenizer "$SOURCE/tests/golden/tokenizer_small" >/dev/null
error_of prefer ref_model_name_or_path=other
prefer use_peft=true max_steps=1 output_dir=adapter >/dev/null 2>&1
error_of prefer ref_model_name_or_path=adapter
if [ -e run ]; then echo "run was made"; fi
