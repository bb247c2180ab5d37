# The template that is written has them as defaults: who loads the result need not know them.
# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
echo '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}' >data.jsonl
cat >model/chat_template.jinja <<'END'
{%- for m in messages %}{{ m.role }}{{ '!' if loud else '.' }}{{ m.content + eos_token }}{% endfor -%}
{%- if add_generation_prompt %}{% if loud is not true %}{{ raise_exception('too quiet') }}{% endif %}assistant!{% endif -%}
END
shown() {
    ebb data dataset=data.jsonl "$@" 2>/dev/null | sed -n 2p
}
train chat_template_kwargs='{loud: true, names: [x, null]}' use_peft=true max_steps=1 2>&1 | grep ^chat_template
head -c 150 run/chat_template.jinja
echo
cmp run/chat_template.jinja run/checkpoint-1/chat_template.jinja
ebb merge adapter_name_or_path=run output_dir=merged >/dev/null 2>&1
shown model=run
shown model=merged
shown model=merged chat_template_kwargs='{loud: false}'
echo q | ebb chat model=run threads=1 max_new_tokens=1 >/dev/null 2>&1 || echo failed
echo q | error_of ebb chat model=model threads=1 max_new_tokens=1
# The same variables again are not written again; others come before them.
ebb sft model=merged dataset=data.jsonl output_dir=same threads=1 max_steps=1 \
    chat_template_kwargs='{loud: true, names: [x, null]}' >/dev/null 2>&1
cmp run/chat_template.jinja same/chat_template.jinja
ebb sft model=merged dataset=data.jsonl output_dir=quiet threads=1 max_steps=1 chat_template_kwargs='{loud: 0}' >/dev/null 2>&1
shown model=quiet
