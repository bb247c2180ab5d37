. "$SOURCE/tests/cli/kit.sh"
make_model
mkdir d; make_data d/test.jsonl 2; make_data d/validation-0.jsonl 2
ebb sft model=model dataset=d output_dir=run
