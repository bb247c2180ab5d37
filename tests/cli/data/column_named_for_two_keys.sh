. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 2
ebb sft model=model dataset=data.jsonl output_dir=run 'dataset_columns={prompt: q, completion: q}'
