# Points are kept as they come, what ended is not tried again, another sweep is refused. The
# interpreter is a fake one: it says what a worker would.
command -v python3 >/dev/null || { echo "there is no python3" >&2; exit 77; }
cat >python <<'FAKE'
#!/bin/sh
mode=$(sed 's/.*"mode": "\([^"]*\)".*/\1/' "$2")
lengths=$(sed 's/.*"lengths": \[\([^]]*\)\].*/\1/; s/,//g' "$2")
echo "$mode: $lengths" >>calls
point() {
    echo "{\"say\": \"point\", \"process_bytes\": \"counted\", \"point\": {\"length\": $1, \
\"peak_device_bytes\": $1000, \"process_device_bytes\": $(($1 * 2000)), \"step_seconds\": 0.5, \
\"tokens_per_second\": $(($1 * 2)), \"loss\": 5.5}}"
}
ready='{"say": "ready", "device": "a GPU", "device_bytes": 1000000, "driver": "9", "versions":'
case $mode in
tune) echo '{"say": "without", "why": "no tune: none is here"}'; exit ;;
ac+tune) echo "a module broke" >&2; exit 1 ;;
esac
echo "$ready {\"torch\": \"${TORCH:-2}\"}}"
for length in $lengths; do
    case $mode:$length in
    ac:256) echo '{"say": "ended", "reason": "out of device memory", "status": "does not fit"}'; exit ;;
    liger:128) kill -9 $$ ;;
    trl:64) printf 'Traceback\nIndexError: a fault\n' >&2; exit 3 ;;
    ac+trl:128) exec sleep 60 ;;
    esac
    point "$length"
done
FAKE
chmod +x python
sweep() {
    python3 "$SOURCE/bench/peers/sweep.py" tiny-llama --output out --python ./python "$@" 2>err.txt
    echo "exit $?"
    cat err.txt
}
modes=plain,ac,liger,trl,tune,ac+tune,trl+ac
sweep --lengths 64:256:x2 --modes $modes --limit 8
ebb plot out/results.json --output out.svg >/dev/null && echo "Ebb reads it"
ls out
echo "--- once more, then with another length and another mode"
: >calls
sweep --lengths 64:256:x2 --modes $modes | grep left
cat calls
: >calls
sweep --lengths 96,512 --modes plain,ac,ac+liger | grep -v tokens:
cat calls
echo "--- what is another sweep"
cp out/results.json kept.json
sweep --lengths 64 --modes plain --steps 4
sweep --lengths 64 --modes plain --full
TORCH=3 sweep --lengths 1k --modes plain
cmp kept.json out/results.json && echo "nothing was changed"
echo '{"format": "ebb results", "version": 1, "kind": "length", "series": []}' >out/results.json
sweep --lengths 64 --modes plain
sweep --lengths 64 --modes plain --overwrite
sweep --lengths 64 --modes tune --output other
