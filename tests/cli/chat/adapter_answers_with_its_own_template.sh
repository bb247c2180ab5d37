. "$SOURCE/tests/cli/kit.sh"
make_sailor
make_data data.jsonl 4
ebb sft model=sailor dataset=data.jsonl output_dir=adapter use_peft=true max_steps=1 learning_rate=1e-9 threads=1 >/dev/null 2>&1
echo ahoy | ebb chat adapter_name_or_path=adapter threads=1
echo "{{- bos_token + 'user\nland' + eos_token + '\n' + bos_token + 'assistant\n' -}}" >adapter/chat_template.jinja
echo ahoy | ebb chat adapter_name_or_path=adapter threads=1
