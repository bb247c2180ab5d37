# From the largest budget down, until one does not do; the result is drawn like any other.
. "$SOURCE/tests/cli/kit.sh"
make_model
ebb bench model=model use_peft=true threads=1 max_length=256 steps=1 --sweep budget=4MiB:12MiB:+4MiB \
    --output out --json 2>said.txt >printed.json
measured <said.txt
cmp printed.json out/results.json
grep -E '"(kind|budget_bytes|name|status)"' out/results.json
ebb plot out/results.json | sed 's/pixels, .*/pixels/'
