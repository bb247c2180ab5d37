# Layers are shown as they were written, and before any data is read.
ebb init tiny-llama model >/dev/null
echo "{" >data.jsonl
for layers in 4- 2-9 7; do
    ebb plan model=model dataset=data.jsonl memory_budget=1GiB activations="[{layers: $layers, x: host}]"
done
printf "model: model\ndataset: data.jsonl\nactivations:\n  - layers: 4-\n    x: keep\n" >conf.yaml
ebb plan conf.yaml
