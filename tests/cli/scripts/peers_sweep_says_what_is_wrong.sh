# Lengths are written as for `ebb bench`; what no mode could do without is said once.
command -v python3 >/dev/null || { echo "there is no python3" >&2; exit 77; }
sweep() {
    python3 "$SOURCE/bench/peers/sweep.py" "$@" >out.txt 2>err.txt
    echo "exit $?"
    sed "s|$SOURCE|SOURCE|g; s|(shapes: .*)|(shapes: ...)|" err.txt
}
for lengths in 1k:3k 1k:4k:2 4k:1k:x2 1 200M 1k:x:x2 64,64 1.3 '' 1k:4k:x1 2:200:+2 nan; do
    sweep tiny-llama --lengths "$lengths"
done
for modes in fast ac+ac trl+tune plain+ac ac,ac ''; do sweep tiny-llama --modes "$modes"; done
sweep no-shape
echo '{}' >config.json
sweep config.json
sweep tiny-llama --python ./nowhere
printf '#!/bin/sh\necho %s\n' "'{\"say\": \"lacking\", \"why\": \"no module named torch\"}'" >python
chmod +x python
sweep tiny-llama --python ./python
echo "--- lengths"
cd "$SOURCE/bench/peers" && python3 -c '
import sweep
for text in ("1k:16k:x2", "length=1k:4k:+1k,64", "1.5k,100", "1M", "100:500:x1.5", "3:9:x2"):
    print(text, *sweep.lengths_of(text))
for mode in sweep.modes_of("plain,liger,liger+ac,trl+liger+ac,tune"):
    print(mode, sweep.series_name(mode), sep=": ")'
