# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 2
echo '{% for %}' >model/chat_template.jinja
echo '{"messages": [{"role": "user", "content": "q"}]}' >prompts.jsonl
train eval_prompts=prompts.jsonl max_steps=1 2>&1 | grep -E '^ebb: '
