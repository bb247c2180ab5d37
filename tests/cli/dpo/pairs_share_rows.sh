. "$SOURCE/tests/cli/kit.sh"
make_model; make_pairs pairs.jsonl 8
prefer packing=true max_length=120 use_peft=true max_steps=3 2>&1 | steady
error_of prefer packing=true max_length=32 output_dir=tight
