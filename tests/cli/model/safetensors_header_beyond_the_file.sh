. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
{ write_number 65535; printf "{}"; } >model/model.safetensors
error_of train
