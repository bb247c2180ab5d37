# On a CPU memory_budget plays the device: each series ends by itself.
. "$SOURCE/tests/cli/kit.sh"
make_model
ebb bench model=model use_peft=true threads=1 memory_budget=9MiB steps=1 --sweep length=64:1k:x4 \
    --modes none,checkpoint+offload --output out 2>said.txt | sed '/^  /d' | measured
measured <said.txt
grep -A4 '"ended"' out/results.json | sizes
