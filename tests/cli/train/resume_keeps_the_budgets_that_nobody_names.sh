# What is free at the moment, or is left out of the command line, does not change the plan of a run that goes on.
. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 8
run="use_peft=true save_strategy=steps save_steps=2"
budgets() { grep -o '"\(device\|host\)_budget": [0-9]*' run/run.json; }
train $run max_steps=2 memory_budget=16MiB host_memory_budget=6MiB >/dev/null 2>&1 || echo failed
budgets
train $run max_steps=4 resume_from_checkpoint=true 2>&1 | grep -E 'budget' | sed 's/: [0-9].* of device/: SIZE of device/;s/).*/)/'
budgets
train $run max_steps=6 resume_from_checkpoint=true memory_budget=1GiB 2>&1 | grep -E 'budget' | sed 's/: [0-9].* of device/: SIZE of device/;s/).*/)/'
budgets
echo '{"plan": {"device_budget": "much"}}' >run/run.json
train $run max_steps=8 resume_from_checkpoint=true 2>&1 | grep -E 'budget' | sed 's/: [0-9].* of device/: SIZE of device/;s/).*/)/'
