# Built-in shapes, and a config.json: nothing is written but that, and not for long.
. "$SOURCE/tests/cli/kit.sh"
cp "$SOURCE/configs/shapes/tiny-qwen3.json" mine.json
ebb bench --models tiny-llama,mine.json --sweep length=16 --modes none --steps 1 threads=1 2>said.txt | measured
measured <said.txt
ls bench-tiny-llama-and-1-more
grep -E '"(weights|model|name)"' bench-tiny-llama-and-1-more/results.json
grep 'no weights' bench-tiny-llama-and-1-more/bench.log
ebb bench --models tiny-llama,tiny-llama --sweep length=16
