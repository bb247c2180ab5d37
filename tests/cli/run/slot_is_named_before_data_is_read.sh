ebb init tiny-llama model --tokenizer bytes >/dev/null
echo "{" >data.jsonl
ebb plan model=model dataset=data.jsonl activations="{gate_pu: keep}"
