#!/bin/sh
# Runs Ebb's own kernels under NVIDIA's compute-sanitizer: overruns, races in shared memory, barriers, reads of what
# nobody wrote. Each op's test with its tensors in device memory, and the training of a small model with each tensor in
# an allocation of its own. Attention through cuDNN is left out, and so are cuBLASLt's kernels where a tool can be told.
#
# usage: gpu_sanitize.sh [FOLDER [SANITIZER [LOGS]]]
# FOLDER: a build or a bundle (./do bundle --tests), otherwise the script's own. SANITIZER: the program, otherwise the one
# on PATH or in /usr/local/cuda/bin. LOGS keeps what the tools print; without, it is thrown away unless one complains.
# A line for each tool and program, and a count. Exit 0: no errors; 1: some; 2: it cannot be run; 77: there is no GPU.
set -u
folder=${1:-$(dirname "$0")}
sanitizer=${2:-}
logs=${3:-}
limit=300 # seconds of one program under one tool
all=420   # seconds of one tool; the four run side by side
tools="memcheck racecheck synccheck initcheck"

folder=$(cd "$folder" && pwd) || exit 2
bin=$folder
[ ! -x "$folder/bin/ebb" ] || bin=$folder/bin
[ -x "$bin/ebb" ] || { echo "gpu_sanitize.sh: '$folder' is neither a build nor a bundle: it has no program 'ebb'" >&2; exit 2; }
case $("$bin/ebb" version) in
*"devices: cpu, cuda"*) ;;
*)
    echo "no GPU: nothing was tested"
    exit 77
    ;;
esac
[ -n "$sanitizer" ] || sanitizer=$(command -v compute-sanitizer) || sanitizer=/usr/local/cuda/bin/compute-sanitizer
if [ ! -x "$sanitizer" ]; then
    echo "gpu_sanitize.sh: there is no compute-sanitizer: name it, or install it (it comes with the CUDA toolkit)" >&2
    exit 2
fi
sanitizer=$(cd "$(dirname "$sanitizer")" && pwd)/$(basename "$sanitizer")
keep=yes
[ -n "$logs" ] || { logs=$(mktemp -d) keep=""; }
mkdir -p "$logs" && logs=$(cd "$logs" && pwd) || exit 2
cd "$folder" || exit 2 # a bundle's tests find their files from here
export EBB_TEST_BACKEND=cuda OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2
began=$(date +%s)

# options TOOL: those of the tool. Ebb's kernels are C functions of C++: _Z, length, name; the libraries' are in
# namespaces or have plain names. initcheck must see all kernels, for a library's product is read by our next kernel.
options() {
    common="--print-limit 10000 --show-backtrace no --error-exitcode 99"
    own="--kernel-name regex=^_Z[0-9]+[a-z_0-9]*_kernel"
    case $1 in
    memcheck) echo "$common $own --padding 256 --report-api-errors no" ;;
    racecheck) echo "$common $own" ;;
    synccheck) echo "$common $own" ;;
    initcheck) echo "$common --check-exit-code no" ;; # cases that look at what an op leaves alone fail: op_test.h
    esac
}

# errors TOOL LOG: how many; empty if the tool did not come to its end.
errors() {
    case $1 in
    # A copy to the host may take rows that nobody wrote along; a kernel that reads them is an error.
    initcheck)
        grep -q "ERROR SUMMARY" "$2" || return 0
        if grep -q "ERROR SUMMARY: [1-9]" "$2" && ! grep -q "ninitialized" "$2"; then return 0; fi
        grep -c "Uninitialized __global__ memory read" "$2"
        ;;
    racecheck) sed -n 's/.*RACECHECK SUMMARY: \([0-9]*\) .*/\1/p' "$2" | tail -n 1 ;;
    *) sed -n 's/.*ERROR SUMMARY: \([0-9]*\) .*/\1/p' "$2" | tail -n 1 ;;
    esac
}

# control TOOL: with blocks that are too short and unwritten the tool must complain, or it sees nothing at all.
control() {
    log=$logs/$1.control.log
    # shellcheck disable=SC2046
    EBB_TEST_MEMORY=faulty timeout -k 5 "$limit" "$sanitizer" --tool "$1" $(options "$1") --log-file "$log" \
        "$bin/test_op_swiglu" >"$logs/$1.control.out" 2>&1
    grep -qE "Invalid __global__ (read|write)|Uninitialized __global__ memory read" "$log" ||
        echo "$1 control FAILED 0 did not see what is wrong on purpose: $(tail -n 1 "$log" 2>/dev/null)" >>"$logs/$1.lines"
}

# run_one TOOL NAME PROGRAM ...: one program under one tool.
run_one() {
    tool=$1 name=$2
    shift 2
    from=$(date +%s)
    left=$((all - (from - began)))
    log=$logs/$tool.$name.log
    if [ "$left" -le 0 ]; then
        echo "$tool $name FAILED 0 not run: $all s are over" >>"$logs/$tool.lines"
        return
    fi
    [ "$left" -lt "$limit" ] || left=$limit
    if [ "$tool" = initcheck ]; then EBB_TEST_MEMORY=unwritten; else EBB_TEST_MEMORY=device; fi
    export EBB_TEST_MEMORY
    # shellcheck disable=SC2046
    timeout -k 5 "$left" "$sanitizer" --tool "$tool" $(options "$tool") --log-file "$log" "$@" \
        >"$logs/$tool.$name.out" 2>&1
    code=$?
    seconds=$(($(date +%s) - from))
    found=$(errors "$tool" "$log" 2>/dev/null)
    note=""
    if [ "$code" -eq 124 ]; then
        found="" note="stopped after $left s"
    elif [ -z "$found" ]; then
        note="exit code $code, no summary: $(tail -n 1 "$log" 2>/dev/null)"
    elif [ "$tool" != initcheck ] && [ "$code" -ne 0 ] && [ "$found" -eq 0 ]; then
        found=1 note="exit code $code"
    fi
    echo "$tool $name ${found:-FAILED} $seconds $note" >>"$logs/$tool.lines"
}

run_tool() {
    case $1 in memcheck | initcheck) control "$1" ;; esac
    for test in "$bin"/test_op_*; do
        [ -x "$test" ] || continue
        case $test in
        *_dnn | *_matmul | *_large_products | *_slots | *_table | *_work | *'*') ;; # the libraries' kernels, or none
        *) run_one "$1" "$(basename "$test")" "$test" ;;
        esac
    done
    # initcheck follows plain stores only, and racecheck breaks down in cuBLASLt's bf16 kernels: fp32, whose products
    # use nothing else.
    [ "$1" = initcheck ] || [ "$1" = racecheck ] || run_one "$1" model_bfloat16 "$bin/test_train_gpu" own-allocations
    run_one "$1" model_float32 "$bin/test_train_gpu" own-allocations float32
}

for tool in $tools; do
    : >"$logs/$tool.lines"
    run_tool "$tool" &
done
wait

# The tools' lines, and for each that complains what it says most often.
runs=0 total=0 broken=0
for tool in $tools; do
    while read -r tool name found seconds note; do
        printf '%-10s %-24s %8s errors %5d s%s\n' "$tool" "$name" "$found" "$seconds" "${note:+   $note}"
        runs=$((runs + 1))
        case $found in
        0) continue ;;
        FAILED) broken=$((broken + 1)) ;;
        *) total=$((total + found)) ;;
        esac
        grep -hE '=========.*(Error|error|Invalid|Uninitialized|hazard|at .*_kernel|Barrier|Internal|Unsupported|unsupported)' \
            "$logs/$tool.$name.log" 2>/dev/null |
            sed 's/0x[0-9a-f]*/0x../g; s/([0-9]*,[0-9]*,[0-9]*)/(..)/g' | sort | uniq -c | sort -rn | head -n 8 | sed 's/^/    /'
        grep -A 2 '^\[  ERROR' "$logs/$tool.$name.out" 2>/dev/null | head -n 6 | sed 's/^/    /'
    done <"$logs/$tool.lines"
done
if [ "$total" -gt 0 ] || [ "$broken" -gt 0 ]; then
    echo "what they printed is in $logs"
elif [ -z "$keep" ]; then
    rm -rf "$logs"
fi
echo "$runs runs, $total errors, $broken runs that did not end as they should, in $(($(date +%s) - began)) s"
[ "$total" -eq 0 ] && [ "$broken" -eq 0 ]
