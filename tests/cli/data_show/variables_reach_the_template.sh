# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
echo '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}' >data.jsonl
cat >own.jinja <<'END'
{%- for m in messages %}{{ m.role }}{{ '!' if loud else '.' }}{{ m.content + eos_token }}{% endfor -%}
END
ebb data model=model dataset=data.jsonl chat_template=own.jinja chat_template_kwargs='{loud: true}' 2>/dev/null |
    sed -n 2p
ebb data model=model dataset=data.jsonl chat_template=own.jinja 2>/dev/null | sed -n 2p
