. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
ebb init tiny-llama teacher --tokenizer "$SOURCE/tests/golden/tokenizer_small" >/dev/null
error_of ebb kd model=model teacher_model_name_or_path=teacher dataset=data.jsonl output_dir=run threads=1
code=$?
[ -e run ] && echo "run was made"
exit $code
