. "$SOURCE/tests/cli/kit.sh"
make_model
ebb plan recipe=kd model=model teacher=model max_length=64 memory_budget=4MiB offload_params=false offload_optimizer=false threads=1 2>&1 >/dev/null | sizes
