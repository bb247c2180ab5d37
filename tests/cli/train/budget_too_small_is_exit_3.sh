. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 8
train per_device_train_batch_size=4 memory_budget=1MiB 2>err.txt
code=$?
sizes <err.txt >&2
ls run 2>/dev/null
exit $code
