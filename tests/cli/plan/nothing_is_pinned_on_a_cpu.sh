. "$SOURCE/tests/cli/kit.sh"
make_model
ebb plan model=model max_length=64 threads=1 memory_budget=1GiB pinned_memory_budget=1GiB
