. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
train resume_from_checkpoint=run/checkpoint-7
