# Where little may move, small budgets do not fit, and larger ones do; only where none does is the sweep in vain.
mkdir model
cp "$SOURCE/configs/shapes/llama-3.2-1b.json" model/config.json
run="model_name_or_path=model gpu=RTX4090 use_peft=true dtype=bfloat16 max_length=8192 sweep=memory"
ebb plan $run host_memory_budget=500MiB 2>&1 | cut -c1-90
ebb plan $run host_memory_budget=500MiB --json 2>&1 | grep -E 'fits|tokens_per_second' | head -n 4
ebb plan $run host_memory_budget=1MiB activation_offloading=true
