. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
printf "{\n  \"architectures\": [\"LlamaForCausalLM\",\n}\n" >model/config.json
train
