. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
train max_steps=1 >/dev/null 2>&1
rm model/model.safetensors
train max_steps=1 overwrite_output_dir=true 2>&1 | tail -n 1
ls run
