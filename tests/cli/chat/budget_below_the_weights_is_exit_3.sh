. "$SOURCE/tests/cli/kit.sh"
make_model
echo ahoy | ebb chat model=model threads=1 memory_budget=1MiB 2>&1 | sizes
