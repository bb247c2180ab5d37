. "$SOURCE/tests/cli/kit.sh"
make_model
make_data data.jsonl 4
error_of train eval_prompts='[what]' eval_max_new_tokens=5000
