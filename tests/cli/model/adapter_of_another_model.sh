. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
train use_peft=true lora_r=2 max_steps=1 >/dev/null 2>&1
ebb init tiny-qwen3 other --tokenizer bytes >/dev/null
ebb merge model=other adapter_name_or_path=run output_dir=merged
code=$?
ls merged 2>/dev/null
exit $code
