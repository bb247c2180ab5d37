ebb init tiny-llama model >/dev/null
printf "model: model\nmax_length: 64\nmemory_budget: 1GiB\nactivations:\n  y: host\n" >conf.yaml
ebb plan conf.yaml
