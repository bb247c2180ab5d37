ebb init tiny-qwen3 a --tokenizer bytes --dtype bf16 >/dev/null
ebb init tiny-qwen3 b --tokenizer bytes --dtype bf16 >/dev/null
ebb init tiny-qwen3 c --tokenizer bytes --dtype bf16 --seed 7 >/dev/null
cmp a/model.safetensors b/model.safetensors && ! cmp -s a/model.safetensors c/model.safetensors
