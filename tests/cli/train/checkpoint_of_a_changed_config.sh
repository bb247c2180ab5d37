. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
train use_peft=true max_steps=1 >/dev/null 2>&1
sed -i 's/"rope_theta": [0-9.]*/"rope_theta": 20000.0/' model/config.json
error_of train use_peft=true max_steps=2 resume_from_checkpoint=true 2>err.txt
code=$?
head -n 1 err.txt >&2
exit $code
