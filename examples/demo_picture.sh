#!/bin/sh
# The end of `./do demo`: a picture of what fits into one budget, by sequence length, in three ways to keep what backward needs.
#
#   sh examples/demo_picture.sh EBB MODEL DATA FOLDER
#
# Trains each point for four steps in FOLDER/bench, draws FOLDER/demo.png, and writes what it shows, with its path as the last
# line, to FOLDER/demo.txt. sh and awk are all that it uses beside the program. Exit code 1 where it would show something else.
# SPDX-License-Identifier: Apache-2.0
set -eu

[ $# -eq 4 ] || { echo "usage: sh examples/demo_picture.sh EBB MODEL DATA FOLDER" >&2; exit 2; }
here=$(dirname "$0")
ebb=$1 model=$2 data=$3 out=$(cd "$4" && pwd)
budget=32MiB

set -- bench "$here/demo_lora.yaml" model_name_or_path="$model" dataset_name="$data" output_dir="$out/bench" \
    memory_budget=$budget per_device_train_batch_size=1 --sweep length=256:4k:x2 \
    --modes none,checkpoint,checkpoint+offload --steps 4
printf '$ %s\n' "$ebb $*" | fold -s -w 108 | sed -e '2,$s/^/    /' -e '$!s/ *$/ \\/'
"$ebb" "$@" >"$out/bench.txt"
"$ebb" plot "$out/bench/results.json" --output "$out/demo.png" \
    --title "How long a sequence fits into ${budget%MiB} MiB: all kept, checkpointing, and with offloading" >/dev/null

# longest MODE: of the lengths that fit, from the table: its rows stand below the mode's name.
longest() {
    awk -v mode="$1" 'NF == 1 { inside = $1 == mode } NF > 5 && inside && $1 + 0 > 0 { most = $1 } END { print most + 0 }' \
        "$out/bench.txt"
}
kept=$(longest none) checkpoint=$(longest checkpoint) offload=$(longest checkpoint+offload)
[ "$kept" -gt 0 ] && [ "$kept" -lt "$checkpoint" ] && [ "$checkpoint" -lt "$offload" ] || {
    cat "$out/bench.txt" >&2
    echo "demo: longest sequences of $kept, $checkpoint and $offload tokens: each was to be longer than the one before" >&2
    exit 1
}
cat >"$out/demo.txt" <<TEXT
The picture shows device memory and speed by sequence length, all within ${budget%MiB} MiB: with everything kept $kept tokens fit,
with checkpointing $checkpoint, and with layers' inputs in host memory as well $offload. It is
$out/demo.png
TEXT
