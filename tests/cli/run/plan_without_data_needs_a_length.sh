ebb init tiny-llama model >/dev/null
ebb plan model=model
