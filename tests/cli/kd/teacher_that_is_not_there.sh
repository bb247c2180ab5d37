. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
error_of ebb kd model=model teacher=teacher dataset=data.jsonl output_dir=run threads=1
code=$?
[ -e run ] && echo "run was made"
exit $code
