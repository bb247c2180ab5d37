# Where matrices live in host memory, each comes in once for all micro-batches of a step.
mkdir model
cp "$SOURCE/configs/shapes/qwen2.5-7b.json" model/config.json
run="model_name_or_path=model gpu=H200 max_length=2048 use_peft=true dtype=bfloat16 memory_budget=8GiB host_memory_budget=64GiB"
ebb plan $run gradient_accumulation_steps=8
ebb plan $run gradient_accumulation_steps=8 gradient_accumulation_order=depth_first | grep -E 'choice|moved|host|step time'
ebb plan $run gradient_accumulation_steps=20 gradient_accumulation_order=layer_by_layer json=true | grep micro_batches
# Keys without effect, and what cannot be.
ebb plan $run gradient_accumulation_order=breadth_first
ebb plan $run gradient_accumulation_steps=2 recipe=dpo gradient_accumulation_order=breadth_first
cp "$SOURCE/configs/shapes/qwen2.5-0.5b.json" model/config.json
ebb plan model_name_or_path=model gpu=H200 max_length=512 gradient_accumulation_steps=2 gradient_accumulation_order=breadth_first
