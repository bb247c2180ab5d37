. "$SOURCE/tests/cli/kit.sh"
make_model
for i in 1 2 3 4; do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"$i?\"}, {\"role\": \"assistant\", \"content\": \"It is $i.\"}]}"
done >data.jsonl
cat >dated.jinja <<'END'
{{- strftime_now('%d %b %Y') -}}
{%- for m in messages -%}{{- bos_token + m.role + '\n' + m.content + eos_token -}}{%- endfor -%}
END
go() {
    zone=$1
    shift
    TZ=$zone ebb kd model=model dataset=data.jsonl chat_template=dated.jinja threads=1 "$@" >said.txt 2>&1 ||
        sed -n '/^ebb: /,$p' said.txt
}
go UTC teacher=model save_teacher=saved
go ABC-24 teacher_logits=saved output_dir=run max_steps=2 use_peft=true save_strategy=steps save_steps=1 # tomorrow
grep -oh '"data_time": "[^"]*"' saved/teacher.json run/run.json | sort -u | wc -l
rm run/adapter_model.safetensors
go ABC-48 teacher_logits=saved output_dir=run max_steps=2 use_peft=true save_strategy=steps save_steps=1 \
    resume_from_checkpoint=run/checkpoint-1
[ -e run/adapter_model.safetensors ] && echo "gone on with"
