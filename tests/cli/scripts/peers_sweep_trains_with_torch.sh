# A real model at two lengths: losses are those of a model that knows nothing, and equal in modes
# that differ in memory alone.
command -v python3 >/dev/null || { echo "there is no python3" >&2; exit 77; }
python3 -c '
import importlib.util
import sys
names = ("torch", "transformers", "peft")
sys.exit("no " + ", ".join(n for n in names if not importlib.util.find_spec(n))
         if not all(map(importlib.util.find_spec, names)) else 0)' || exit 77
sweep() {
    python3 "$SOURCE/bench/peers/sweep.py" tiny-llama --device cpu --steps 2 "$@" 2>err.txt
    echo "exit $?"
}
sweep --lengths 48,96 --modes plain,ac >out.txt
grep -E 'exit|json' out.txt
python3 - <<'CHECK'
import json
import math
with open("peers-tiny-llama/results.json") as file:
    results = json.load(file)
for series in results["series"]:
    print(series["name"], [point["length"] for point in series["points"]])
    for point in series["points"]:
        assert abs(point["loss"] - math.log(264)) < 0.15, point
        assert point["step_seconds"] > 0 and "process_device_bytes" not in point, point
plain, ac = (series["points"] for series in results["series"])
for one, other in zip(plain, ac):
    assert abs(one["loss"] - other["loss"]) < 1e-3, (one, other)
CHECK
ebb plot peers-tiny-llama/results.json --output out.svg >/dev/null && echo "Ebb reads it"
sweep --lengths 48 --modes plain --full --output full | grep exit
