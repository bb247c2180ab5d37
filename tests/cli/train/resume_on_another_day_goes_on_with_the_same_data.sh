. "$SOURCE/tests/cli/kit.sh"
make_model
for i in 1 2 3 4 5 6 7 8; do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i?\"}, {\"role\": \"assistant\", \"content\": \"It is $i.\"}]}"
done >data.jsonl
cat >dated.jinja <<'END'
{{- strftime_now('%d %b %Y') -}}
{%- for m in messages -%}{{- bos_token + m.role + '\n' + m.content + eos_token -}}{%- endfor -%}
END
go() {
    zone=$1 dir=$2
    shift 2
    TZ=$zone train output_dir="$dir" chat_template=dated.jinja use_peft=true max_steps=4 save_strategy=steps \
        save_steps=2 "$@" >"$dir.txt" 2>&1 || cat "$dir.txt"
}
same() {
    cmp -s one/adapter_model.safetensors "$1/adapter_model.safetensors" && echo "$1 is the same" || echo "$1 is another"
}
go UTC one
go ABC-24 other # tomorrow
same other
cp -r one two
rm -r two/checkpoint-4 two/adapter_model.safetensors
go ABC-24 two resume_from_checkpoint=true
same two
cmp one/checkpoint-4/training_state.ebb two/checkpoint-4/training_state.ebb
grep -oh '"data_time": "[^"]*"' one/run.json two/run.json two/checkpoint-4/trainer_state.json | sort -u | wc -l
