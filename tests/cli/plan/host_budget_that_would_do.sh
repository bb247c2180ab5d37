# The advice names the least, not what the smallest plan happens to take; and it is enough.
ebb init tiny-llama model --tokenizer bytes >init.log 2>&1 || cat init.log
run="model_name_or_path=model max_length=512 use_peft=true device=cpu threads=2 memory_budget=10600KiB"
ebb plan $run host_memory_budget=200KiB 2>err >out
grep -E 'error|try' err
enough=$(sed -n 's/.*try: *host_memory_budget: \([0-9A-Za-z]*\),.*/\1/p' err)
ebb plan $run host_memory_budget="$enough" | grep -E 'choice|budget'
# Without a budget a GPU that is not here has an assumed host, and every bound can be broken.
ebb plan model_name_or_path=model max_length=512 use_peft=true gpu=L4 | grep host
ebb plan model_name_or_path=model max_length=4096 use_peft=true gpu=L4 memory_budget=634MiB host_memory_budget=300KiB 2>&1 |
    grep -E 'error|try'
