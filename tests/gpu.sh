#!/bin/sh
# The tests that use a GPU. They need no compiler: a build's folder will do, or a bundle (./do bundle --tests), which
# has a copy of this script.
#
# usage: gpu.sh [FOLDER [LOGS]]     FOLDER: a build or a bundle, otherwise the script's own
# A line for each test program, and a count. Exit 0: all passed; 1: some failed; 77: there is no GPU.
# LOGS keeps what the programs print; without, it is thrown away unless one fails.
# They share the GPU, a few at a time: EBB_GPU_JOBS, otherwise a third of the processors, from 1 to 6. Those that look at
# the device as a whole run before the others, one by one.
set -u
folder=${1:-$(dirname "$0")}
logs=${2:-}
limit=200 # seconds of one program
all=570   # seconds of all programs

folder=$(cd "$folder" && pwd) || exit 2
bin=$folder
[ ! -x "$folder/bin/ebb" ] || bin=$folder/bin
[ -x "$bin/ebb" ] || { echo "gpu.sh: '$folder' is neither a build nor a bundle: it has no program 'ebb'" >&2; exit 2; }
version=$("$bin/ebb" version) || exit 1
gpu=$(echo "$version" | sed -n 's/^cuda: //p')
case $version in
*"devices: cpu, cuda"*) ;;
*)
    echo "no GPU: $gpu; nothing was tested"
    exit 77
    ;;
esac
keep=yes
[ -n "$logs" ] || { logs=$(mktemp -d) keep=""; }
mkdir -p "$logs" && logs=$(cd "$logs" && pwd) || exit 2
cd "$folder" || exit 2 # a bundle's tests find their files from here
EBB_TEST_CACHE=$(mktemp -d) # plans of attention take the first engine that wants them a while
trap 'rm -rf "$EBB_TEST_CACHE"' EXIT
export EBB_TEST_BACKEND=cuda EBB_TEST_CACHE OMP_WAIT_POLICY=passive
began=$(date +%s)
jobs=${EBB_GPU_JOBS:-$(($(nproc) / 3))}
[ "$jobs" -ge 1 ] || jobs=1
[ "$jobs" -le 6 ] || jobs=6
counts=$logs/counts # lines of passed, failed, skipped
: >"$counts"
: >"$logs/ebb.out"
launched=0

# report NAME PASSED FAILED SKIPPED SECONDS [NOTE]
report() {
    printf '%-24s %4d passed %4d failed %4d skipped %5d s%s\n' "$1" "$2" "$3" "$4" "$5" "${6:+   $6}"
    echo "$2 $3 $4" >>"$counts"
}

# What cmocka printed as "CASES PASSED SKIPPED"; a crash leaves cases that are neither.
count() {
    cat "$logs/$1.out" "$logs/$1.err" | awk '
        /^\[=+\] Running/ { cases += $3 }
        /^\[ +OK \]/ { ok++ }
        /^\[ +SKIPPED \] [0-9]+ test/ { skipped += $4 }
        END { print cases + 0, ok + 0, skipped + 0 }'
}

# run_test PROGRAM [NAME]
run_test() {
    name=${2:-$(basename "$1")}
    from=$(date +%s)
    left=$((all - (from - began)))
    [ "$left" -gt 0 ] || { report "$name" 0 1 0 0 "not run: $all s are over"; return; }
    [ "$left" -lt "$limit" ] || left=$limit
    timeout -k 5 "$left" "$1" >"$logs/$name.out" 2>"$logs/$name.err"
    code=$?
    seconds=$(($(date +%s) - from))
    if [ "$code" -eq 77 ]; then
        report "$name" 0 0 1 "$seconds" "$(tail -n 1 "$logs/$name.out")"
        return
    fi
    # shellcheck disable=SC2046
    set -- $(count "$name")
    bad=$(($1 - $2 - $3))
    [ "$code" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    note=""
    [ "$code" -ne 124 ] || note="stopped after $left s"
    [ "$code" -lt 128 ] || note="ended by signal $((code - 128))"
    report "$name" "$2" "$bad" "$3" "$seconds" "$note"
    [ "$bad" -gt 0 ] || return 0
    {
        grep -A 2 '^\[  ERROR' "$logs/$name.err" | head -n 24
        [ -z "$note" ] || grep '^\[ RUN' "$logs/$name.out" | tail -n 1
    } | sed 's/^/    /'
}

# sft NAME KEY=VALUE ...: trains a few steps with the program itself.
sft() {
    to=$1
    shift
    "$bin/ebb" sft model_name_or_path="$work/model" dataset_name="$work/data.jsonl" output_dir="$work/$to" device=cuda \
        max_steps=3 per_device_train_batch_size=4 use_peft=true learning_rate=1e-2 save_strategy=no "$@"
}

# The program from end to end: what offloading and recomputation make of a run changes none of its bits.
run_program() {
    work=$(mktemp -d)
    from=$(date +%s)
    ok=0 bad=0
    for i in 1 2 3 4 5 6 7 8; do
        echo "{\"prompt\": \"How many are $i and $i?\", \"completion\": \" They are $((i + i)).\"}"
    done >"$work/data.jsonl"
    for step in \
        '"$bin/ebb" init tiny-llama "$work/model" --tokenizer bytes' \
        'sft kept dtype=float32' \
        'sft moved dtype=float32 gradient_checkpointing=true activation_offloading=true' \
        'grep -q "\"bytes_out\": [1-9]" "$work/moved/metrics.jsonl"' \
        'cmp "$work/kept/adapter_model.safetensors" "$work/moved/adapter_model.safetensors"' \
        'sft half dtype=bfloat16' \
        '"$bin/ebb" generate model_name_or_path="$work/half" device=cuda prompt="How many" max_new_tokens=8'; do
        echo "== $step" >>"$logs/ebb.out"
        if eval "$step" >>"$logs/ebb.out" 2>&1; then ok=$((ok + 1)); else bad=$((bad + 1)); fi
    done
    report ebb "$ok" "$bad" 0 $(($(date +%s) - from))
    [ "$bad" -eq 0 ] || sed 's/^/    /' "$logs/ebb.out"
    rm -rf "$work"
}

# beside COMMAND ...: in the background, once fewer than $jobs are there. Its lines come together when it ends.
running=""
beside() {
    launched=$((launched + 1))
    while :; do
        still="" number=0
        for pid in $running; do
            if kill -0 "$pid" 2>/dev/null; then still="$still $pid" number=$((number + 1)); fi
        done
        running=$still
        [ "$number" -ge "$jobs" ] || break
        sleep 0.1
    done
    (
        lines=$("$@")
        printf '%s\n' "$lines"
    ) &
    running="$running $!"
}

# As where host memory cannot be pinned.
run_pageable() {
    EBB_TEST_PAGEABLE=1
    export EBB_TEST_PAGEABLE
    run_test "$bin/test_train_policy" pageable_policy
}

echo "$gpu"
for test in "$bin"/test_device_cuda*; do
    [ -x "$test" ] || continue
    launched=$((launched + 1))
    run_test "$test"
done
for test in "$bin"/test_train_distill "$bin"/test_train_* "$bin"/test_op_* "$bin"/test_program_executor; do # longest first
    [ -f "$test" ] && [ -x "$test" ] || continue
    case $test in *_train_distill) [ -z "${distill:-}" ] || continue; distill=seen ;; esac
    beside run_test "$test"
done
beside run_pageable
beside run_program
wait
missing=$((launched - $(wc -l <"$counts")))
[ "$missing" -eq 0 ] || report "without a result" 0 "$missing" 0 0
# shellcheck disable=SC2046
set -- $(awk '{ passed += $1; failed += $2; skipped += $3 } END { print passed + 0, failed + 0, skipped + 0 }' "$counts")
if [ "$2" -gt 0 ]; then
    echo "what they printed is in $logs"
elif [ -z "$keep" ]; then
    rm -rf "$logs"
fi
echo "$1 test cases passed, $2 failed, $3 skipped on $gpu, in $(($(date +%s) - began)) s"
[ "$2" -eq 0 ]
