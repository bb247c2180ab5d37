# Plans over budgets are drawn as they are printed, several in one picture.
mkdir model
cp "$SOURCE/configs/shapes/llama-3.2-1b.json" model/config.json
plan="ebb plan model_name_or_path=model gpu=RTX4090 use_peft=true dtype=bfloat16 sweep=memory --json"
$plan max_length=8192 >short.json
$plan max_length=16384 >long.json
ebb plot short.json long.json | sed 's/pixels, .*/pixels/'
ebb plot "$SOURCE/tests/fuzz/corpus/results/lengths.json" --output lengths.png | sed 's/pixels, .*/pixels/'
