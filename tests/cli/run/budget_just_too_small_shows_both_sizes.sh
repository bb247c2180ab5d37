# Sizes that differ do not read alike.
ebb init tiny-llama model >/dev/null
plan="model=model max_length=2048 use_peft=true threads=1"
# shellcheck disable=SC2086
least=$(ebb plan $plan memory_budget=64KiB 2>&1 | sed -n 's/.*memory_budget: \([0-9]*\)KiB$/\1/p')
# shellcheck disable=SC2086
ebb plan $plan memory_budget=$((least - 1))KiB 2>&1 |
    sed -n 's/.*needs \([0-9.]* [KMG]*i*B\) of .* is \([0-9.]* [KMG]*i*B\)$/\1,\2/p' |
    awk -F, '{ print ($1 == $2 ? $1 " twice" : "two sizes") }'
