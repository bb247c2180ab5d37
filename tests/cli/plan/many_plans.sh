# What budgets give, and the longest row.
mkdir model
cp "$SOURCE/configs/shapes/llama-3.2-1b.json" model/config.json
run="model_name_or_path=model gpu=RTX4090 use_peft=true dtype=bfloat16"
ebb plan $run max_length=8192 sweep=memory
ebb plan $run memory_budget=4GiB --max-length
ebb plan $run memory_budget=4GiB max_length=longest --json | tail -n 13
ebb plan $run memory_budget=1GiB --max-length
