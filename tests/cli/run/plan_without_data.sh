ebb init tiny-llama model >/dev/null
ebb plan model=model max_length=256 json=true >plan.json
grep -o "\"fits\": [a-z]*" plan.json
grep -o "\"tokens\": [0-9]*" plan.json
