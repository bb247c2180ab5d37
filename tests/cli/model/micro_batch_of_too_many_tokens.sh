. "$SOURCE/tests/cli/kit.sh"
make_model
ebb plan model=model max_length=100000000 per_device_train_batch_size=65536
