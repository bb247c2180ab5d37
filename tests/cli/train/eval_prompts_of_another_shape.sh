. "$SOURCE/tests/cli/kit.sh"
make_model
make_data data.jsonl 4
echo '{"question": "what?"}' >prompts.jsonl
error_of train eval_prompts=prompts.jsonl
