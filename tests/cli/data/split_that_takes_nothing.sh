. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 3
train "dataset_train_split=train[5:9]"
