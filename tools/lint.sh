#!/bin/sh
# The style's rules that a script can check. usage: lint.sh BUILD_FOLDER
set -eu
cd "$(dirname "$0")/.."
build=$1
failures=0

complain() { # complain TITLE TEXT
    [ -z "$2" ] && return 0
    printf 'lint: %s\n%s\n' "$1" "$2"
    failures=$((failures + 1))
}

# A room includes only rooms before it.
rooms="base plot device op stash program plan model loss optim data train recipe cli"
before=""
for room in $rooms; do
    before="$before|$room"
    [ -d "src/$room" ] || continue
    bad=$(grep -nE '^#include "' -r "src/$room" --include='*.[ch]' --include='*.cu' --include='*.cuh' | grep -vE "#include \"(${before#|}|ebb|oneapi)/|\"dnnl.h\"" || true)
    complain "src/$room includes a room behind it" "$bad"
done

# Every header compiles alone, as C11 and, where there is a C++ compiler, as C++17.
if command -v g++ >/dev/null; then cxx=g++; elif command -v clang++ >/dev/null; then cxx=clang++; else cxx=""; fi
if echo '#include <cuda_runtime_api.h>' | cc -E - >/dev/null 2>&1; then cuda=yes; else cuda=""; fi
for header in $(find src include -name '*.h' ! -path src/op/list.h); do
    [ "$cuda" ] || ! grep -q '#include <cu' "$header" || continue # needs the CUDA toolkit
    cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Isrc -Iinclude -fsyntax-only -x c "$header" ||
        complain "does not compile alone" "$header"
    [ -z "$cxx" ] || $cxx -std=c++17 -Isrc -Iinclude -fsyntax-only -x c++ "$header" ||
        complain "does not compile as C++17" "$header"
done

# Names that are banned, and where others belong.
complain "banned function" "$(grep -nwE '(strcpy|strcat|sprintf|vsprintf|atoi|atol|atof|strtok|gets)[[:space:]]*\(' -r src --include='*.[ch]' --include='*.cu' --include='*.cuh' || true)"
complain "heap outside base/" "$(grep -nwE '(malloc|calloc|realloc|free)[[:space:]]*\(' -r src --include='*.[ch]' --include='*.cu' --include='*.cuh' | grep -v '^src/base/' | grep -vE '^\S+:\s*(/?\*|//)' || true)"
complain "exit, print or environment outside cli/ and base/" "$(grep -nwE '(exit|abort|printf|getenv)[[:space:]]*\(' -r src --include='*.[ch]' --include='*.cu' --include='*.cuh' | grep -vE '^src/(base|cli)/' || true)"
complain "device memory outside device/" "$(grep -nE 'cuda(Malloc|HostAlloc|Free)[A-Za-z]*[[:space:]]*\(' -r src --include='*.[ch]' --include='*.cu' | grep -v '^src/device/' || true)"
complain "a wait for the whole device" "$(grep -n 'cudaDeviceSynchronize' -r src --include='*.[ch]' --include='*.cu' || true)"
complain "unfinished work" "$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' -r src include tests tools examples bench --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.sh' --include='*.py' | grep -v '^tools/lint.sh' || true)"

# First lines say what a file is for; one licence line.
for file in $(find src include tests bench -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh'); do
    head -c 2 "$file" | grep -q '^/\*' || complain "does not open with a comment" "$file"
    grep -q 'SPDX-License-Identifier: Apache-2.0' "$file" || complain "no licence line" "$file"
done
complain "longer than 100 columns" "$(awk 'length($0) > 100 {print FILENAME ":" FNR}' $(find src include tests bench -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh') | head -20)"
complain "file name not unique" "$(find src include \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -printf '%f\n' | sort | uniq -d)"

# No state outside the context: nothing in .data or .bss (tables of pointers live in .data.rel.ro).
for library in "$build"/libebb_*.a; do
    bad=$(objdump -t "$library" 2>/dev/null | awk '$4 ~ /^\.(data|bss)$/ && $6 != ".data" && $6 != ".bss" && NF >= 6 {print $NF}' |
        grep -v '^\.' | grep -vE '__device_stub|__fatDevice|__cudaFat|__nv_' | sort -u || true) # nvcc's registration
    complain "mutable global state in $(basename "$library")" "$bad"
done

[ "$failures" -eq 0 ] || { echo "lint: $failures findings"; exit 1; }
echo "lint: clean"
