ebb init tiny-llama model --tokenizer bytes >/dev/null
ebb plan model=model max_length=64 memory_budget=1GiB activations="{gate_up: host_half, o: host_half}"
