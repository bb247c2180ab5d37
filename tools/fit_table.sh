#!/bin/sh
# The tables of docs/WILL_IT_FIT.md: what 'ebb plan' says of models, methods and lengths on GPUs by their data sheets.
# usage: fit_table.sh EBB [MODEL ...]     MODEL: qwen2.5-0.5b llama-3.2-1b qwen2.5-7b llama-3.1-8b; all without one
# METHODS and LENGTHS in the environment take fewer rows. No GPU and no weights are needed; all of it takes minutes.
# SPDX-License-Identifier: Apache-2.0
set -eu
[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
ebb=$1
shift
shapes=$(cd "$(dirname "$0")/.." && pwd)/configs/shapes
[ $# -gt 0 ] || set -- qwen2.5-0.5b llama-3.2-1b qwen2.5-7b llama-3.1-8b
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/cache" "$scratch/model"
XDG_CACHE_HOME=$scratch/cache # rates that were measured on this machine have no say
LC_ALL=C
export XDG_CACHE_HOME LC_ALL

# plan KEY=VALUE ...: 'ebb plan' of the model as JSON into plan.json; false where it does not fit.
plan() {
    code=0
    "$ebb" plan model_name_or_path="$scratch/model" dtype=bfloat16 json=true "$@" \
        >"$scratch/plan.json" 2>"$scratch/said" || code=$?
    case $code in
    0 | 3) return $code ;;
    esac
    cat "$scratch/said" >&2
    exit 1
}

# number KEY: of the last plan.
number() {
    sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*\$/\1/p" "$scratch/plan.json" | head -n 1
}

# gib BYTES: two digits, three from 10 on.
gib() {
    awk -v n="$1" 'BEGIN { n /= 1024 ^ 3; printf n < 9.95 ? "%.1f" : "%.0f", n }'
}

# speed: the last plan's tokens a second, three digits.
speed() {
    awk -v n="$(number tokens_per_second)" 'BEGIN {
        scale = 1
        while (n / scale >= 1000) scale *= 10
        n = int(n / scale + 0.5) * scale
        if (n >= 1000) printf "%d,%03d", n / 1000, n % 1000
        else printf "%d", n
    }'
}

# cell GPU KEY=VALUE ...: the fastest plan that fits; a star where 64 GiB of host memory are not enough, "no" where nothing fits.
cell() {
    gpu=$1
    shift
    if plan gpu="$gpu" host_memory_budget=64GiB "$@"; then
        speed
    elif plan gpu="$gpu" host_memory_budget=256GiB "$@"; then
        echo "$(speed)\\*"
    else
        echo no
    fi
}

# measured MODEL METHOD TOKENS: what docs/PERFORMANCE.md has of the H200 in this row, tokens a second.
measured() {
    case "$1 $2 $3" in
    "qwen2.5-0.5b LoRA 8192") echo "105,417 forecasts" ;;
    "qwen2.5-0.5b full 8192") echo "91,460 speed-of-a-step" ;;
    "llama-3.2-1b LoRA 8192") echo "64,824 forecasts" ;;
    "llama-3.2-1b full 8192") echo "51,286 speed-of-a-step" ;;
    "qwen2.5-7b LoRA 8192") echo "15,267 forecasts" ;;
    "qwen2.5-7b LoRA 32768") echo "10,359 forecasts" ;;
    "qwen2.5-7b LoRA 131072") echo "4,166 forecasts" ;;
    esac
}

# basis MODEL METHOD TOKENS: the row's last cell.
basis() {
    found=$(measured "$@")
    [ -z "$found" ] || found="; [measured](PERFORMANCE.md#${found#* }) on the H200: ${found% *}"
    echo "predicted$found"
}

for model in "$@"; do
    cp "$shapes/$model.json" "$scratch/model/config.json"
    echo
    echo "### $model"
    echo
    echo "| method | tokens | least: device + host | RTX 3060 12GB | RTX 4090 | L40S | A100 80GB | H100 | H200 | |"
    echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for method in ${METHODS:-LoRA full}; do
        [ "$method" = LoRA ] && peft=true || peft=false
        for length in ${LENGTHS:-2048 8192 32768 131072}; do
            keys="max_length=$length use_peft=$peft"
            # shellcheck disable=SC2086
            plan gpu=H200 host_memory_budget=512GiB memory_budget=1MiB $keys || :
            row="| $method | $length | $(gib "$(number total_bytes)") + $(gib "$(number host_bytes)") |"
            for gpu in "RTX 3060 12GB" "RTX 4090" L40S "A100 80GB" H100 H200; do
                # shellcheck disable=SC2086
                row="$row $(cell "$gpu" $keys) |"
            done
            echo "$row $(basis "$model" "$method" "$length") |"
        done
    done
done
