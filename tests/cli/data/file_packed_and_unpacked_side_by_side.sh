. "$SOURCE/tests/cli/kit.sh"
make_model
mkdir d; make_data d/train.jsonl 2
gzip -n <d/train.jsonl >d/train.jsonl.gz
ebb sft model=model dataset=d output_dir=run
