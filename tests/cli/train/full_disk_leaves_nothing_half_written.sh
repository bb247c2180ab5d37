. "$SOURCE/tests/cli/kit.sh"
mkdir disk
# A small disk of its own, in a namespace of its own where that takes no rights.
unshare --user --map-root-user --mount true 2>/dev/null || { echo "no mount namespace here" >&2; exit 77; }
make_model; make_data data.jsonl 4
unshare --user --map-root-user --mount sh -c "mount -t tmpfs -o size=1m none disk || exit 77
    ebb sft model=model dataset=data.jsonl output_dir=disk/run threads=1 use_peft=true max_steps=1
    code=\$?
    ls -A disk/run
    exit \$code" 2>err.txt
code=$?
tail -n 2 err.txt | sed -e "s/cannot write .*: [0-9]* more bytes ([^)]*) wanted after [0-9]*, .* left/cannot write FILE: .../" >&2
exit $code
