. "$SOURCE/tests/cli/kit.sh"
make_model
printf "\n\n" >data.jsonl
train
