. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 8
train memory_budget=7MiB offload_optimizer=false 2>err.txt
sed -n "s/^ *\(use_peft: true\) (needs \(.*\), .* less: fits)/\1 \2/p" err.txt >change.txt
cat change.txt
ebb plan model=model dataset=data.jsonl memory_budget=7MiB use_peft=true threads=1 2>/dev/null | sed -n "s/device memory  *//p"
