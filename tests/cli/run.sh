#!/bin/sh
# Runs one case of the command line: run.sh EBB SOURCE_DIR AREA/CASE
# The case is tests/cli/AREA/CASE.sh, run by sh in an empty directory with `ebb` on the PATH and SOURCE set. What it writes
# to stdout and stderr must be CASE.out and CASE.err (nothing where there is no such file) and its exit code CASE.exit (0
# where there is none). EBB_BLESS=1 writes these files instead of judging. Exit 77 of a case skips it.
# SPDX-License-Identifier: Apache-2.0
ebb=$1 SOURCE=$2 case=$3
base=$SOURCE/tests/cli/$case
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/work" "$scratch/home"
ln -s "$ebb" "$scratch/bin/ebb"
PATH=$scratch/bin:$PATH HOME=$scratch/home LC_ALL=C.UTF-8
export PATH HOME LC_ALL SOURCE
HF_HUB_CACHE=/no-cache # so that no test depends on what this machine has downloaded
export HF_HUB_CACHE
CUDA_VISIBLE_DEVICES= # nor on its GPU
export CUDA_VISIBLE_DEVICES
LSAN_OPTIONS=suppressions=$SOURCE/tests/lsan.supp:print_suppressions=0 # of builds with sanitizers
export LSAN_OPTIONS
unset EBB_LOG HF_HOME NO_COLOR XDG_CACHE_HOME COLUMNS
cd "$scratch/work" || exit 1
sh "$base.sh" >"$scratch/out" 2>"$scratch/err" </dev/null
code=$?
[ $code -eq 77 ] && { cat "$scratch/err"; exit 77; }

if [ -n "$EBB_BLESS" ]; then
    for stream in out err; do
        if [ -s "$scratch/$stream" ]; then cp "$scratch/$stream" "$base.$stream"; else rm -f "$base.$stream"; fi
    done
    if [ $code -ne 0 ]; then echo $code >"$base.exit"; else rm -f "$base.exit"; fi
    exit 0
fi

failed=0
for stream in out err; do
    wanted=$base.$stream
    [ -f "$wanted" ] || wanted=/dev/null
    diff -u "$wanted" "$scratch/$stream" || failed=1
done
wanted=0
[ -f "$base.exit" ] && wanted=$(cat "$base.exit")
[ "$wanted" = "$code" ] || { echo "exit code $code, wanted $wanted"; failed=1; }
[ $failed -eq 0 ] || echo "to accept: EBB_BLESS=1 sh tests/cli/run.sh $ebb $SOURCE $case"
exit $failed
