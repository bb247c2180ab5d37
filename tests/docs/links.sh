#!/bin/sh
# What the documentation points at is there: links.sh EBB SOURCE_DIR. Links between pages with their headings, files of the
# project that are named (`src/...`), commands (`ebb NAME`), and from README a way to every page.
# SPDX-License-Identifier: Apache-2.0
ebb=$1 source=$2
LC_ALL=C.UTF-8
export LC_ALL
cd "$source" || exit 1
faults=$(mktemp) said=$(mktemp)
trap 'rm -f "$faults" "$said"' EXIT

# prose PAGE: its text without fenced blocks.
prose() {
    awk '/^ *```/ { inside = !inside; next } !inside' "$1"
}

# slugs PAGE: its headings as links name them.
slugs() {
    prose "$1" | sed -n 's/^#\{1,6\} *//p' | tr '[:upper:]' '[:lower:]' | sed 's/[^[:alnum:] _-]//g; s/ /-/g'
}

for page in *.md docs/*.md; do
    folder=$(dirname "$page")
    for link in $(prose "$page" | sed 's/`[^`]*`//g' | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//'); do
        case $link in http://* | https://*) continue ;; esac
        target=${link%%#*} heading=""
        case $link in *'#'*) heading=${link#*#} ;; esac
        [ -n "$target" ] && file=$folder/$target || file=$page
        [ -e "$file" ] || { echo "$page: there is no '$link'" >>"$faults"; continue; }
        [ -z "$heading" ] || slugs "$file" | grep -qx -- "$heading" ||
            echo "$page: '$link': there is no such heading" >>"$faults"
    done
    # Names with X, NAME and the like stand for others.
    for name in $(grep -oE '`(docs|src|tests|tools|configs|examples|bench|include)/[A-Za-z0-9_./-]+`' "$page" |
        tr -d '`' | grep -vE '[/_]x[._]|/x$|[A-Z]{2}' | sort -u) \
        $(grep -oE '`docs/[A-Z_]+\.(md|svg)`' "$page" | tr -d '`' | grep -v '/X\.' | sort -u); do
        [ -e "$name" ] || [ -e "src/$name" ] || echo "$page: there is no \`$name\`" >>"$faults"
    done
    for name in $(grep -oE '`ebb [a-z]+' "$page" | sed 's/^`ebb //' | sort -u); do
        "$ebb" help "$name" >"$said" 2>&1 && grep -q "^usage: ebb $name\|^usage: ebb" "$said" ||
            echo "$page: there is no 'ebb $name'" >>"$faults"
    done
done

# Every page is found from README.
reached="README.md"
for round in 1 2 3; do
    for page in $reached; do
        for link in $(prose "$page" | grep -oE '\]\([^) #]+\.md' | sed 's/^](//'); do
            file=$(dirname "$page")/$link
            file=${file#./}
            case $file in docs/../*) file=${file#docs/../} ;; esac
            case " $reached " in *" $file "*) ;; *) reached="$reached $file" ;; esac
        done
    done
done
for page in *.md docs/*.md; do
    case " $reached " in *" $page "*) ;; *) echo "README.md: no way leads to $page" >>"$faults" ;; esac
done
cat "$faults"
[ ! -s "$faults" ]
