. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
printf "abc" >model/model.safetensors
error_of train
