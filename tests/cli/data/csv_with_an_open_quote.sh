. "$SOURCE/tests/cli/kit.sh"
make_model
printf 'prompt,completion\na,"b\nc"\nd,"e\nf,g\n' >data.csv
ebb sft model=model dataset=data.csv output_dir=run
