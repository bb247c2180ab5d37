. "$SOURCE/tests/cli/kit.sh"
make_model
make_data data.jsonl 2
: >logs
error_of train report_to=tensorboard logging_dir=logs/events
