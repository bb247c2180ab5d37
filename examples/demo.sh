#!/bin/sh
# What `./do demo` shows: a small model learns to speak from nothing, then a second task within a memory budget; at the end a
# picture of what fits into one.
#
#   sh examples/demo.sh BUILD_FOLDER
#
# Needs BUILD_FOLDER/ebb and BUILD_FOLDER/demo_data. Everything that it makes goes into BUILD_FOLDER/demo, which it
# removes first. No download; sh and awk are all that it uses beside the two programs. Exit code 0: every step worked.
# SPDX-License-Identifier: Apache-2.0
set -eu

[ $# -eq 1 ] || { echo "usage: sh examples/demo.sh BUILD_FOLDER" >&2; exit 2; }
here=$(dirname "$0")
ebb=$1/ebb
out=$1/demo
for program in "$ebb" "$1/demo_data"; do
    [ -x "$program" ] || { echo "demo: there is no '$program': build first (./do build)" >&2; exit 2; }
done
# On the processor in any case: a GPU's driver alone takes more than these budgets.
CUDA_VISIBLE_DEVICES=
export CUDA_VISIBLE_DEVICES
start=$(date +%s)
pid=""
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
rm -rf "$out"
mkdir -p "$out"

title() {
    printf '\n== %s\n' "$1"
}

# Prints a command as one can paste it, in lines of at most 110 columns.
print_command() {
    printf '%s\n' "$*" | awk '{
        line = "$"
        for (i = 1; i <= NF; i++) {
            if (length(line) + length($i) > 108) { print line " \\"; line = "   " }
            line = line " " $i
        }
        print line }'
}

# Shows a command, then runs it.
run() {
    print_command "$@"
    "$@"
}

# ask MODEL ASK GOT TOKENS: the model continues each line of ASK, with a line of GOT for each.
ask() {
    "$ebb" generate model_name_or_path="$1" prompt_lines=true max_new_tokens="$4" <"$2" >"$3" 2>"$3.log" ||
        { cat "$3.log" >&2; exit 1; }
    # A model that knows nothing yet says bytes that are no text.
    LC_ALL=C tr -c '\n -~' '?' <"$3" >"$3.text"
    mv "$3.text" "$3"
}

# How many lines of GOT begin with what WANT has there: "48 of 50".
score() {
    awk 'NR == FNR { want[NR] = $0; next }
         substr($0, 1, length(want[FNR])) == want[FNR] { right++ }
         END { print right + 0 " of " FNR }' "$1" "$2"
}

# The first COUNT prompts of ASK, each with what GOT has for it.
show() {
    awk -v count="$3" 'NR == FNR { got[NR] = $0; next }
         FNR <= count { printf "  %s\n     ->%s\n", $0, got[FNR] }' "$2" "$1"
}

# The number (or word) of a key in a JSON object on standard input.
field() {
    awk -v key="\"$1\":" '{ at = index($0, key)
         if (at) { value = substr($0, at + length(key)); sub(/^ */, "", value); sub(/[,}].*/, "", value); print value } }'
}

# Loss and share of right tokens of MODEL on a data set: "0.1234, 98.7 % of the tokens right".
evaluate() {
    "$ebb" eval model_name_or_path="$1" dataset_name="$2" --json >"$out/eval.json" 2>"$out/eval.log" ||
        { cat "$out/eval.log" >&2; exit 1; }
    awk -v loss="$(field eval_loss <"$out/eval.json")" -v right="$(field eval_mean_token_accuracy <"$out/eval.json")" \
        'BEGIN { printf "loss %.3f, %.1f %% of the tokens right", loss, 100 * right }'
}

title "1. A model with random weights, and data made by a small grammar"
run "$ebb" init "$here/demo_model.json" "$out/model" --tokenizer bytes
run "$1/demo_data" "$out"
echo "The first task: sentences about animals, and questions about them. A record of questions.jsonl:"
sed -n '1s/^/  /p' "$out/questions.jsonl"
echo "Some pairs, such as 'red fox', are in no sentence that is trained. All tests below use only those."

title "2. The first task from scratch: every weight is trained"
ask "$out/model" "$out/questions-ask.txt" "$out/questions-before.txt" 24
run "$ebb" sft "$here/demo_scratch.yaml" model_name_or_path="$out/model" dataset_name="$out/questions.jsonl" \
    output_dir="$out/base"
ask "$out/base" "$out/questions-ask.txt" "$out/questions-after.txt" 24
echo "Before: right answers to $(score "$out/questions-want.txt" "$out/questions-before.txt") questions. For example"
show "$out/questions-ask.txt" "$out/questions-before.txt" 1
echo "After:  $(score "$out/questions-want.txt" "$out/questions-after.txt"). For example (cut off after 24 bytes)"
show "$out/questions-ask.txt" "$out/questions-after.txt" 5

title "3. The second task, with LoRA: the same facts as JSON, which the model was never asked for"
echo "A record of facts.jsonl:"
sed -n '1s/^/  /p' "$out/facts.jsonl"
before=$(evaluate "$out/base" "$out/facts-test.jsonl")
ask "$out/base" "$out/facts-ask.txt" "$out/facts-before.txt" 64
echo "Before: $before; right objects: $(score "$out/facts-want.txt" "$out/facts-before.txt"). It goes on with its questions:"
show "$out/facts-ask.txt" "$out/facts-before.txt" 3
echo "LoRA, within 32 MiB of device memory: layers' inputs wait in host memory until the backward pass."
run "$ebb" sft "$here/demo_lora.yaml" model_name_or_path="$out/base" dataset_name="$out/facts.jsonl" \
    output_dir="$out/lora"
after=$(evaluate "$out/lora" "$out/facts-test.jsonl")
ask "$out/lora" "$out/facts-ask.txt" "$out/facts-after.txt" 64
echo "After:  $after; right objects: $(score "$out/facts-want.txt" "$out/facts-after.txt")."
show "$out/facts-ask.txt" "$out/facts-after.txt" 3

title "4. What it costs: the same run, each micro-batch 8192 tokens, three ways to keep what backward needs"
# measure NAME KEY=VALUE ...: plans, runs 4 steps, and leaves a line of numbers in NAME.row.
measure() {
    name=$1
    shift
    set -- "$here/demo_lora.yaml" model_name_or_path="$out/base" dataset_name="$out/facts.jsonl" \
        output_dir="$out/$name" per_device_train_batch_size=16 memory_budget=512MiB "$@"
    "$ebb" plan "$@" --json >"$out/$name.plan" 2>"$out/$name.log" || { cat "$out/$name.log" >&2; exit 1; }
    print_command "$ebb" sft "$@" max_steps=4
    "$ebb" sft "$@" max_steps=4 >"$out/$name.log" 2>&1 &
    pid=$!
    peak=0
    # The process's largest resident set so far, as long as there is one.
    while now=$(awk '$1 == "VmHWM:" { print $2 }' "/proc/$pid/status" 2>/dev/null) && [ -n "$now" ]; do
        peak=$now
        sleep 0.05
    done
    wait "$pid" || { cat "$out/$name.log" >&2; exit 1; }
    pid=""
    for key in loss grad_norm; do field "$key" <"$out/$name/metrics.jsonl" >"$out/$name.$key"; done
    awk -v plan="$(field device_bytes <"$out/$name.plan")" -v host="$(field host_bytes <"$out/$name.plan")" \
        -v arena="$(tail -n 1 "$out/$name/metrics.jsonl" | field peak_device_bytes)" \
        -v pages="$(tail -n 1 "$out/$name/metrics.jsonl" | field process_device_bytes)" \
        -v whole="$peak" -v rate="$(tail -n 1 "$out/$name/metrics.jsonl" | field tokens_per_second)" \
        'BEGIN { printf "%9.1f%9.1f%10.1f%9.1f%10.1f%12d\n", plan / 1048576, arena / 1048576, pages / 1048576,
                        host / 1048576, whole / 1024, rate }' >"$out/$name.row"
}
measure all-kept gradient_checkpointing=false activation_offloading=false
measure checkpointing gradient_checkpointing=true activation_offloading=false
measure offloading gradient_checkpointing=true activation_offloading=true
echo
echo "MiB                         device memory            host   process   tokens"
echo "                           plan    arena     pages             peak   a second"
printf 'nothing offloaded      %s\n' "$(cat "$out/all-kept.row")"
printf 'checkpointing          %s\n' "$(cat "$out/checkpointing.row")"
printf 'checkpointing, offload %s\n' "$(cat "$out/offloading.row")"
cat <<'TEXT'
plan: what 'ebb plan' said before the run. arena: up to the last byte that the run used. pages: how much of the
arena the system really gave. host: where activations wait. process: the largest resident set, with program and
data. On the CPU arena and host are both main memory; on an accelerator only the arena is its own.
TEXT
for name in checkpointing offloading; do
    for key in loss grad_norm; do
        cmp "$out/all-kept.$key" "$out/$name.$key" || { echo "demo: $name changed the numbers" >&2; exit 1; }
    done
    cmp "$out/all-kept/adapter_model.safetensors" "$out/$name/adapter_model.safetensors"
done
echo "Losses, gradient norms and adapters of the three are equal, bit for bit:"
paste "$out/all-kept.loss" "$out/checkpointing.loss" "$out/offloading.loss" | sed 's/^/  /'

title "5. What fits: one budget, longer and longer sequences"
sh "$here/demo_picture.sh" "$ebb" "$out/base" "$out/facts.jsonl" "$out"

title "Done in $(($(date +%s) - start)) seconds. The models are in $out: try"
echo "$ebb generate model_name_or_path=$out/lora prompt='Under the tree sings the tiny grey cat.'"
echo
cat "$out/demo.txt"
