. "$SOURCE/tests/cli/kit.sh"
ebb bench model=tiny-llama
ebb bench model=tiny-llama --sweep memory
ebb bench model=tiny-llama --sweep length=1k:8k
ebb bench model=tiny-llama --sweep length=1k:8k:2
ebb bench model=tiny-llama --sweep budget=8GiB:1GiB:x2
ebb bench model=tiny-llama --sweep length=1k --modes keep
ebb bench --sweep length=1k
ebb bench model=no/model --sweep length=1k 2>&1 | grep error
ebb bench-point
ls
