# Nothing that can be done on this machine would tell how long a step takes there.
mkdir model
cp "$SOURCE/configs/shapes/llama-3.2-1b.json" model/config.json
ebb plan model_name_or_path=model gpu=L4 max_length=512 use_peft=true dtype=float32 | grep 'step time'
ebb plan model_name_or_path=model device=cpu max_length=512 use_peft=true dtype=float32 | grep 'step time'
