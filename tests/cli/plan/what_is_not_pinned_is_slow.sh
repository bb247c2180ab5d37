# Where less may be pinned than has to be in host memory, the plan says how much goes through pinned slots, and its
# forecast has the rate of these; where a plan that is pinned as a whole is faster, that is taken.
mkdir model
cp "$SOURCE/configs/shapes/qwen2.5-7b.json" model/config.json
run="model_name_or_path=model gpu=H200 max_length=8192 use_peft=true dtype=bfloat16"
lines() { grep -E '^(choice|host memory  |  pinned|  through|host_memory_budget|  stalls|bound by|  beside)'; }
echo "layer inputs by hand, half of them pinned:"
ebb plan $run 'activations={x: host}' pinned_memory_budget=768MiB | lines
ebb plan $run 'activations={x: host}' pinned_memory_budget=768MiB json=true |
    grep -E '"(host_bytes|pinned_bytes|pageable_bytes|pin_seconds)"'
echo "what the plan decides:"
ebb plan $run memory_budget=17GiB | lines
ebb plan $run memory_budget=17GiB pinned_memory_budget=512MiB | lines
echo "optimizer state that has to be there:"
ebb plan model_name_or_path=model gpu=L4 max_length=2048 dtype=bfloat16 host_memory_budget=128GiB \
    pinned_memory_budget=32GiB | lines
