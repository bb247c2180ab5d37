. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
(ulimit -f 64; train use_peft=true max_steps=1) 2>err.txt
code=$?
tail -n 1 err.txt | sed -e "s/[0-9][0-9]* more bytes wanted after [0-9]*/N more bytes wanted after M/" >&2
ls -A run
exit $code
