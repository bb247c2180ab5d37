. "$SOURCE/tests/cli/kit.sh"
make_model
echo ahoy | ebb chat model=model threads=1 memory_budget=6MiB max_new_tokens=1 2>&1 >/dev/null | sed 's/of [0-9]* tokens/of N tokens/'
