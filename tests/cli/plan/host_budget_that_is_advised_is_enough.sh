# A search may find nothing within a host budget that a plan for a larger one does not fill: only what was tried is advised.
mkdir model
cp "$SOURCE/configs/shapes/llama-3.2-1b.json" model/config.json
for budget in 3790 3890 3950; do
    run="model_name_or_path=model gpu=RTX4090 use_peft=true dtype=bfloat16 max_length=8192 memory_budget=${budget}MiB"
    ebb plan $run host_memory_budget=10MiB 2>err >out
    grep -E 'error|try' err
    enough=$(sed -n 's/.*try: *host_memory_budget: \([0-9A-Za-z]*\),.*/\1/p' err)
    ebb plan $run host_memory_budget="$enough" | grep host_memory_budget
done
