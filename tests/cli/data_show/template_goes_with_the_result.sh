# Into the result and its checkpoints, from there into what goes on from it and what is merged.
# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
mkdir more
cat >more/chat_template.jinja <<'END'
{%- for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor -%}
END
mkdir more/additional_chat_templates
echo '{%- for m in messages %}{{ m.content + eos_token }}{% endfor -%}' >more/additional_chat_templates/tool_use.jinja
echo '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}' >data.jsonl
train chat_template=more use_peft=true num_train_epochs=1 2>&1 | grep ^chat_template
for dir in run run/checkpoint-1; do
    cmp more/chat_template.jinja $dir/chat_template.jinja
    cmp more/additional_chat_templates/tool_use.jinja $dir/additional_chat_templates/tool_use.jinja
done
train use_peft=true num_train_epochs=2 chat_template=more resume_from_checkpoint=true >/dev/null 2>&1 || echo failed
ls run
ebb eval model=run dataset=data.jsonl >/dev/null 2>&1 || echo failed
ebb merge adapter_name_or_path=run output_dir=merged >/dev/null 2>&1
cmp more/chat_template.jinja merged/chat_template.jinja
ebb sft model=merged dataset=data.jsonl output_dir=full threads=1 max_steps=1 >/dev/null 2>&1
cmp more/chat_template.jinja full/chat_template.jinja
cmp more/additional_chat_templates/tool_use.jinja full/additional_chat_templates/tool_use.jinja
# Another template than the model's leaves nothing of that behind.
ebb sft model=merged dataset=data.jsonl output_dir=other threads=1 max_steps=1 chat_template=zephyr >/dev/null 2>&1
ebb configs cat zephyr | cmp - other/chat_template.jinja
ls other/additional_chat_templates
