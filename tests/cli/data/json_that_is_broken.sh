. "$SOURCE/tests/cli/kit.sh"
make_model
printf "[\n  {\"text\": \"one\"},\n  {\"text\": \"two\"\n]\n" >data.json
ebb sft model=model dataset=data.json output_dir=run
