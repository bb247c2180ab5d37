. "$SOURCE/tests/cli/kit.sh"
make_model
mkdir d; make_data d/train-0.jsonl 2; make_data d/other.jsonl 2; make_data d/test.jsonl 2; echo x >d/train-1.parquet
train dataset=d
