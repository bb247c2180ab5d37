. "$SOURCE/tests/cli/kit.sh"
make_model
ebb plan recipe=dpo model=model max_length=64 memory_budget=4MiB threads=1 offload_params=false offload_optimizer=false >/dev/null
ebb plan recipe=dpo model=model max_length=64 per_device_train_batch_size=2 memory_budget=14MiB threads=1 offload_params=false offload_optimizer=false >/dev/null
