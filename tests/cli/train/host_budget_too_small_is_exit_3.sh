. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 8
error_of train use_peft=true memory_budget=1GiB gradient_checkpointing=true activation_offloading=true host_memory_budget=4KiB 2>err.txt
code=$?
sizes <err.txt >&2
exit $code
