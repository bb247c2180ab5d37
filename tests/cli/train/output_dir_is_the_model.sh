. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
ebb sft model=model dataset=data.jsonl output_dir=model/../model overwrite_output_dir=true max_steps=1 2>err.txt
code=$?
tail -n 3 err.txt >&2
ls model
exit $code
