. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 20
gzip -n data.jsonl
head -c 100 data.jsonl.gz >cut.jsonl.gz
ebb sft model=model dataset=cut.jsonl.gz output_dir=run
