#!/bin/sh
# Tokens per second of a training step on this machine's processor, beside PyTorch where there is one.
#
#   sh bench/cpu.sh BUILD_FOLDER [--python PATH] [--rounds N] [--steps N] [--threads N] [--tokens N]
#                                [--cases "METHOD:DTYPE:DOCUMENTS ..."] [--cpu-time] [--ops]
#
# PATH (or EBB_BENCH_PYTHON) is a Python that has torch, transformers and, for LoRA, peft. Both sides run the same
# model (bench/llama-14m.json), batch size, threads and dtype, one after the other, in turns: what counts is the
# median over --rounds of each side's median over --steps. --cpu-time counts processor seconds instead of the clock's,
# with --threads 1: for a machine that others use too. --ops adds a table of where Ebb's time goes.
# Every run's JSON is kept in BUILD_FOLDER/bench.
# SPDX-License-Identifier: Apache-2.0
set -eu

# usage: what the lines above say.
usage() {
    sed -n '2,/^# SPDX/{/^# SPDX/d;s/^# \{0,1\}//p;}' "$0"
}

fail() {
    echo "bench/cpu.sh: $*" >&2
    exit 2
}

for word in "$@"; do
    case "$word" in -h | --help) usage; exit 0 ;; esac
done
[ $# -ge 1 ] || { usage >&2; exit 2; }
build=$1
shift
[ -f "$build/CMakeCache.txt" ] || fail "'$build' is no build folder ('./do build' makes build)"
python=${EBB_BENCH_PYTHON:-} rounds=3 steps=5 threads="" tokens=1024 cpu_time="" ops=""
cases="full:float32:1 full:bfloat16:1 lora:float32:1 lora:bfloat16:1 full:float32:4 full:bfloat16:4"
while [ $# -gt 0 ]; do
    case "$1" in
    --cpu-time) cpu_time=--cpu-time ;;
    --ops) ops=yes ;;
    --python | --rounds | --steps | --threads | --tokens | --cases)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case "$1" in
        --python) python=$2 ;;
        --rounds) rounds=$2 ;;
        --steps) steps=$2 ;;
        --threads) threads=$2 ;;
        --tokens) tokens=$2 ;;
        --cases) cases=$2 ;;
        esac
        shift
        ;;
    *) fail "unknown argument '$1' (--help lists all)" ;;
    esac
    shift
done
if [ -z "$threads" ]; then
    if [ -n "$cpu_time" ]; then threads=1; else threads=$(nproc); fi
fi
if [ -n "$python" ] && ! "$python" -c 'import torch, transformers' 2>/dev/null; then
    fail "'$python' cannot import torch and transformers"
fi

root=$(cd "$(dirname "$0")/.." && pwd)
cmake --build "$build" --target bench_step >"$build/bench.log" 2>&1 || { cat "$build/bench.log" >&2; exit 1; }
out=$build/bench
mkdir -p "$out"
config=$root/bench/llama-14m.json

# run_one SIDE FILE OPTION ...
run_one() {
    side=$1 file=$2
    shift 2
    if [ "$side" = ebb ]; then
        "$build/bench_step" "$config" "$@" >"$file"
    else
        "$python" "$root/tools/bench_torch.py" "$config" "$@" >"$file"
    fi
}

# rates FILE ...: tokens per second of each, ascending
rates() {
    sed -n 's/.*"tokens_per_second": *\([0-9.]*\).*/\1/p' "$@" | sort -n
}

# spread FILE ...: "lowest-highest"
spread() {
    rates "$@" | awk 'NR == 1 { low = $1 } { high = $1 } END { printf "%.0f-%.0f", low, high }'
}

median() {
    awk '{ v[NR] = $1 } END { print (NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2) }'
}

unit="tokens/s"
[ -z "$cpu_time" ] || unit="tokens per processor second"
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "$unit; $tokens tokens, $threads threads, $rounds rounds of $steps steps"
printf '%-6s %-9s %9s %10s %10s %7s   %s\n' method dtype documents Ebb PyTorch ratio "lowest and highest round"
for case in $cases; do
    method=${case%%:*} documents=${case##*:} dtype=${case#*:}
    dtype=${dtype%:*}
    name=$out/$method-$dtype-$documents
    rm -f "$name"-ebb-*.json "$name"-torch-*.json
    round=1
    while [ "$round" -le "$rounds" ]; do
        sides="ebb"
        [ -z "$python" ] || sides="ebb torch"
        [ -z "$python" ] || [ $((round % 2)) -eq 1 ] || sides="torch ebb"
        for side in $sides; do
            # shellcheck disable=SC2086
            run_one "$side" "$name-$side-$round.json" --method "$method" --dtype "$dtype" --documents "$documents" \
                --tokens "$tokens" --threads "$threads" --steps "$steps" $cpu_time
        done
        round=$((round + 1))
    done
    ebb=$(rates "$name"-ebb-*.json | median)
    range=$(spread "$name"-ebb-*.json)
    torch=- ratio=-
    if [ -n "$python" ]; then
        torch=$(rates "$name"-torch-*.json | median)
        range="$range, $(spread "$name"-torch-*.json)"
        ratio=$(awk "BEGIN { printf \"%.2f\", $ebb / $torch }")
        torch=$(awk "BEGIN { printf \"%.0f\", $torch }")
    fi
    printf '%-6s %-9s %9s %10.0f %10s %7s   %s\n' "$method" "$dtype" "$documents" "$ebb" "$torch" "$ratio" "$range"
done
[ -n "$python" ] || echo "(no PyTorch measured: name a Python that has it with --python PATH or EBB_BENCH_PYTHON)"
if [ -n "$ops" ]; then
    for dtype in float32 bfloat16; do
        echo "where a full $dtype step goes:"
        # shellcheck disable=SC2086,SC2069
        "$build/bench_step" "$config" --dtype "$dtype" --tokens "$tokens" --threads "$threads" --steps "$steps" \
            $cpu_time --ops 2>&1 >"$out/ops-$dtype.json"
    done
fi
echo "runs in $out"
