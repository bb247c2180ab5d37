# What has no meaning is said.
mkdir model
cp "$SOURCE/configs/shapes/llama-3.2-1b.json" model/config.json
for keys in 'gpu=Voodoo max_length=512' 'gpu=A100 max_length=512' 'gpu=L4 device=cpu max_length=512' \
    'doc_length=64 max_length=512' 'doc_length=15 max_length=512 packing=true' \
    'sweep=memory memory_budget=4GiB max_length=512' 'sweep=memory --max-length' \
    'dataset_name=d.jsonl --max-length' 'sweep=length max_length=512'; do
    echo "$keys"
    ebb plan model_name_or_path=model $keys 2>&1
done
ebb sft model_name_or_path=model dataset_name=d.jsonl output_dir=out max_length=longest 2>&1
ebb sft model_name_or_path=model dataset_name=d.jsonl output_dir=out gpu=L4 2>&1
