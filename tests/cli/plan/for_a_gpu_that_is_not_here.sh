# A config.json is enough, and neither a GPU nor its libraries need be there.
mkdir model
cp "$SOURCE/configs/shapes/qwen2.5-7b.json" model/config.json
ebb plan model_name_or_path=model gpu=H200 max_length=8192 use_peft=true dtype=bfloat16 'activations={x: host}'
ebb plan model_name_or_path=model gpu='nvidia geforce rtx 4090' max_length=2048 packing=true doc_length=256 \
    use_peft=true dtype=bfloat16 gradient_accumulation_steps=4 json=true |
    grep -E '"(fits|memory_budget|free_bytes|total_bytes|micro_batches|bound_by|device|measured)"'
ebb plan model_name_or_path=model gpu=L4 max_length=8192 dtype=bfloat16
