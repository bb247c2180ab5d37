. "$SOURCE/tests/cli/kit.sh"
make_model
script -qec true /dev/null >/dev/null 2>&1 || { echo "no 'script' here to make a terminal with" >&2; exit 77; }
# What the terminal echoes comes in any order; what is said about it does not.
printf 'bad \377 byte\n/reset\n/set top_p 0.5\n/set\n/exit\n' |
    script -qec "ebb chat model=model threads=1" /dev/null >said.txt
grep -ao "line 1 of.*UTF-8\|that line is left out\|the conversation begins anew\|'top_p' has no effect with temperature: 0\|top_p 1.0" said.txt
