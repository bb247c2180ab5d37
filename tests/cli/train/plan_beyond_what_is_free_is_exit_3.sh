# A memory_budget that somebody names is believed by the plan; what the machine has of it is looked up before the first
# step, before weights are read and anything is reserved.
. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
sed -i 's/"hidden_size": [0-9]*/"hidden_size": 65536/; s/"intermediate_size": [0-9]*/"intermediate_size": 262144/
    s/"num_hidden_layers": [0-9]*/"num_hidden_layers": 400/; s/"head_dim": [0-9]*/"head_dim": 128/' model/config.json
train use_peft=true max_steps=1 memory_budget=900000GiB 2>err.txt
code=$?
grep -A 4 '^ebb: error' err.txt | sizes >&2
ls run
exit $code
