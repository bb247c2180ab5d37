. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 8
train use_peft=true max_steps=4 save_strategy=steps save_steps=2 >/dev/null 2>&1
cp -r run kept
printf x >>run/checkpoint-4/training_state.ebb
train use_peft=true max_steps=4 save_strategy=steps save_steps=2 resume_from_checkpoint=true 2>&1 |
    grep -E "warning|going on" | sed "s/has [0-9]* bytes, its manifest says [0-9]*/has N bytes, its manifest says M/"
cmp run/adapter_model.safetensors kept/adapter_model.safetensors && echo "the result is the same"
