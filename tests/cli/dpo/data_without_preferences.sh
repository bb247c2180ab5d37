. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 2
error_of ebb dpo model=model dataset=data.jsonl output_dir=run threads=1
