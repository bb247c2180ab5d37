#!/bin/sh
# Runs what a page of the documentation shows: run.sh EBB SOURCE_DIR PAGE.md
#
# A fenced block says behind its language what is done with it; all blocks of a page run in its order, in one empty folder,
# with `ebb` on the PATH:
#   ```sh run              runs, and has to end well. `epochs N` behind it: with so many epochs instead of those it names
#   ```console run         lines behind "$ " are run (a "\" at the end goes on in the next line), and what they print, to
#                          stdout and stderr, is the rest. "..." stands for any lines in a line of its own, at a line's end for
#                          any text. Behind it:
#                          `numbers`: numbers and times may be others; `exit N`: the last command ends with N, not 0
#   ```yaml file NAME      becomes this file (any language)
#   ```yaml keys WORDS     keys that `ebb plan` has to understand together, with WORDS behind them
#   ```sh no-run REASON    is not run, for this reason, which is printed (console and python alike)
# <!-- no-run: REASON --> in the first lines: nothing of the page is run.
# <!-- run ... --> holds commands that the reader does not see. Blocks of sh, console, python and yaml have to have a mark,
# and an indented block must not have a command.
# SPDX-License-Identifier: Apache-2.0
ebb=$1 SOURCE=$2 page=$3
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/work" "$scratch/home" "$scratch/blocks"
ln -s "$ebb" "$scratch/bin/ebb"
PATH=$scratch/bin:$PATH HOME=$scratch/home LC_ALL=C.UTF-8 HF_HUB_CACHE=/no-cache CUDA_VISIBLE_DEVICES=
LSAN_OPTIONS=suppressions=$SOURCE/tests/lsan.supp:print_suppressions=0
OMP_WAIT_POLICY=passive
export PATH HOME LC_ALL HF_HUB_CACHE CUDA_VISIBLE_DEVICES LSAN_OPTIONS OMP_WAIT_POLICY SOURCE
unset EBB_LOG HF_HOME NO_COLOR XDG_CACHE_HOME COLUMNS

reason=$(sed -n '1,3s/^<!-- no-run: \(.*\) -->$/\1/p' "$SOURCE/$page")
[ -z "$reason" ] || { echo "not run: $page: $reason"; exit 0; }

# The page's blocks as files: blocks/NUMBER, and a line in blocks/list: NUMBER LINE MARK WORDS.
awk -v to="$scratch/blocks" '
    function open_block(mark, words) { file = to "/" ++count; printf "" >file; print count, FNR, mark, words >(to "/list") }
    function complain(text) { print FILENAME ":" FNR ": " text >(to "/faults") }
    FNR == 1 { before = "" }
    !inside && /^<!-- run$/ { inside = "-->"; open_block("hidden", ""); next }
    !inside && /^ *```/ {
        info = $0; sub(/^ *```/, "", info)
        n = split(info, word, " "); inside = "```"; file = ""
        rest = info; sub(/^[^ ]* *[^ ]* */, "", rest)
        if (word[2] == "run" && (word[1] == "sh" || word[1] == "console")) open_block(word[1], rest)
        else if (word[2] == "file" && n == 3) open_block("file", rest)
        else if (word[2] == "keys" && word[1] == "yaml") open_block("keys", rest)
        else if (word[2] == "no-run" && n > 2) open_block("no-run", rest)
        else if (n > 1) complain("this mark is not known: ```" info)
        else if (word[1] ~ /^(sh|bash|shell|console|python|yaml)$/) complain("a block of " word[1] " without a mark")
        next
    }
    inside && (inside == "-->" ? $0 == inside : $0 ~ /^ *```$/) { if (file) close(file); inside = ""; file = ""; next }
    inside { if (file) print >file; next }
    /^    +(\$ )?([^|]* \| *)?(ebb|\.\/do|sh|python3?) / && (before == "" || indented) && !listed {
        complain("a command in a block without a mark:" $0)
    }
    { indented = /^    / && (before == "" || indented); before = $0 }
    /^[*-] |^[0-9]+\. / { listed = 1 }
    /^[^ *0-9-]/ { listed = 0 }
    END { if (inside) complain("a block without an end") }
' "$SOURCE/$page" || exit 1
failed=0
[ ! -s "$scratch/blocks/faults" ] || { cat "$scratch/blocks/faults"; failed=1; }
[ -s "$scratch/blocks/list" ] || exit $failed

# mask: numbers and times as marks, blanks as one.
mask() {
    sed -E -e 's/[0-9]+m [0-9]+s/TIME/g; s/[0-9.]+ ?m?s([^a-z]|$)/TIME\1/g; s/-?[0-9]+([.,][0-9]+)*(e[-+]?[0-9]+)?/N/g' \
        -e 's/ +/ /g'
}

# match WANTED SAID: every stretch of lines between "..." is found in what was said, in this order; without them all of it.
match() {
    awk '
        function same(w, s) {
            if (w !~ /[^.]\.\.\.$/) return w == s
            w = substr(w, 1, length(w) - 3)
            return substr(s, 1, length(w)) == w
        }
        FILENAME == ARGV[1] { wanted[++wants] = $0; next }
        { said[++says] = $0 }
        END {
            at = 1; loose = 0
            for (w = 1; w <= wants;) {
                if (wanted[w] == "...") { loose = 1; w++; continue }
                for (last = w; last < wants && wanted[last + 1] != "...";) last++
                for (s = at; ; s++) {
                    if (s + last - w > says) { print "not said: " wanted[w]; exit 1 }
                    for (i = w; i <= last && same(wanted[i], said[s + i - w]);) i++
                    if (i > last) break
                    if (!loose) { print "said:   " said[s + i - w]; print "wanted: " wanted[i]; exit 1 }
                }
                at = s + last - w + 1; w = last + 1; loose = 0
            }
            if (!loose && at <= says) { print "said beyond it: " said[at]; exit 1 }
        }' "$1" "$2"
}

# judge: what the last command of a console block said, against the page.
judge() {
    [ -n "$command" ] || return 0
    printf '%s\n' "$command" >"$scratch/command.sh"
    sh "$scratch/command.sh" >"$scratch/said" 2>&1 </dev/null
    code=$?
    cp "$scratch/wanted" "$scratch/wanted.cmp"
    if [ "$numbers" ]; then
        mask <"$scratch/wanted" >"$scratch/wanted.cmp"
        mask <"$scratch/said" >"$scratch/said.cmp"
    else
        cp "$scratch/said" "$scratch/said.cmp"
    fi
    match "$scratch/wanted.cmp" "$scratch/said.cmp" || { echo "$page:$line: \$ $command"; cat "$scratch/said"; failed=1; }
}

# console NUMBER: its commands one by one.
console() {
    command="" more="" numbers="" exits=0
    case " $words " in *" numbers "*) numbers=1 ;; esac
    case " $words " in *" exit "*) exits=${words##*exit } exits=${exits%% *} ;; esac
    : >"$scratch/wanted"
    while IFS= read -r text; do
        case $text in
        '$ '*)
            judge
            [ -z "$command" ] || [ $code -eq 0 ] || { echo "$page:$line: exit code $code of: $command"; failed=1; }
            command=${text#??}
            : >"$scratch/wanted"
            ;;
        *)
            if [ "$more" ]; then command="$command
$text"; else printf '%s\n' "$text" >>"$scratch/wanted"; fi
            ;;
        esac
        case $more$text in 1*\\ | '$ '*\\) more=1 ;; *) more="" ;; esac
    done <"$scratch/blocks/$1"
    judge
    [ "$code" = "$exits" ] || { echo "$page:$line: exit code $code of: $command"; failed=1; }
}

cd "$scratch/work" || exit 1
while read -r number line mark words; do
    block=$scratch/blocks/$number
    case $mark in
    no-run) echo "not run: $page:$line: $words" ;;
    file)
        case $words in */*) mkdir -p "${words%/*}" ;; esac
        cp "$block" "$words"
        ;;
    keys)
        [ -d "$scratch/model" ] || ebb init tiny-llama "$scratch/model" --tokenizer bytes >"$scratch/said" 2>&1
        cp "$block" "$scratch/keys.yaml"
        # shellcheck disable=SC2086
        ebb plan "$scratch/keys.yaml" model_name_or_path="$scratch/model" $words >"$scratch/said" 2>&1 </dev/null ||
            { echo "$page:$line: keys are not understood"; cat "$scratch/said"; failed=1; }
        ;;
    sh | hidden)
        case $words in epochs*) sed -i "s/num_train_epochs=[0-9]*/num_train_epochs=${words#epochs }/g" "$block" ;; esac
        sh -e "$block" >"$scratch/said" 2>&1 </dev/null ||
            { echo "$page:$line: exit code $?"; cat "$scratch/said"; failed=1; }
        ;;
    console) console "$number" ;;
    esac
done <"$scratch/blocks/list"
exit $failed
