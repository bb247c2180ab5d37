. "$SOURCE/tests/cli/kit.sh"
make_model
printf 'prompt,completion\na,"b\nc"\nd,e,f\n' >data.csv
ebb sft model=model dataset=data.csv output_dir=run
