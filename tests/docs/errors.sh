#!/bin/sh
# docs/TROUBLESHOOTING.md has every error that a case of the command line shows, and every exit code: errors.sh EBB SOURCE_DIR
# A row of its tables begins with a message in backticks, in which "..." stands for any text. The other way round, each row's
# message is one of a case, or its longest part without "..." is in the sources.
# SPDX-License-Identifier: Apache-2.0
source=$2
page=$source/docs/TROUBLESHOOTING.md
LC_ALL=C.UTF-8
export LC_ALL
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
sed -n 's/^| `\([^`]*\)` |.*|.*|$/\1/p' "$page" >"$scratch/texts"
sed -e 's/[][\\.*^$+?(){}|]/\\&/g' -e 's/\\\.\\\.\\\./.*/g' -e 's/^/^/; s/$/$/' "$scratch/texts" >"$scratch/patterns"
cat "$source"/tests/cli/*/*.err "$source"/tests/cli/*/*.out | sed -n 's/^.*ebb: error: //p' | sort -u >"$scratch/messages"
failed=0

grep -vE -f "$scratch/patterns" "$scratch/messages" >"$scratch/missing" &&
    { echo "no row of docs/TROUBLESHOOTING.md for:"; cat "$scratch/missing"; failed=1; }

# All texts of the sources in one line, those that go on in a next literal as one.
cat "$source"/src/*/*.[ch] "$source"/src/*/*.cu | tr '\n' ' ' | sed 's/"  *"//g; s/\\"/"/g; s/%[a-z0-9.]*/.../g' >"$scratch/sources"
paste -d '\n' "$scratch/texts" "$scratch/patterns" | while IFS= read -r text && IFS= read -r pattern; do
    grep -qE -- "$pattern" "$scratch/messages" && continue
    part=$(printf '%s\n' "$text" | awk '{ n = split($0, p, /\.\.\./); for (i = 1; i <= n; i++) if (length(p[i]) > length(best)) best = p[i]; print best }')
    grep -qF -- "$part" "$scratch/sources" || echo "nothing says: $text"
done >"$scratch/stale"
[ ! -s "$scratch/stale" ] || { cat "$scratch/stale"; failed=1; }

for code in $(sed -n 's/^ *X([A-Z_]*, \([0-9]*\),.*/\1/p' "$source/src/base/status.h" | sort -u); do
    grep -q "^| $code | " "$page" || { echo "docs/TROUBLESHOOTING.md: no exit code $code"; failed=1; }
done
exit $failed
