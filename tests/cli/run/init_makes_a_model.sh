ebb init tiny-llama model --tokenizer bytes
ls -A model
