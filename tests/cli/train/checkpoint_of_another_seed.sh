. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
train use_peft=true max_steps=1 >/dev/null 2>&1
train use_peft=true max_steps=2 seed=7 resume_from_checkpoint=true 2>err.txt
code=$?
tail -n 4 err.txt >&2
exit $code
