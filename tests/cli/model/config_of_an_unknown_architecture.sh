. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
sed -i "s/LlamaForCausalLM/MambaForCausalLM/" model/config.json
train
