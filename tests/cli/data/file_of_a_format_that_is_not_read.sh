. "$SOURCE/tests/cli/kit.sh"
make_model
printf 'prompt,completion\na,b\n' >data.csv
ebb sft model_name_or_path=model dataset_name=data.csv output_dir=out
