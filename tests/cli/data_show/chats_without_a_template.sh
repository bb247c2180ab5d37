# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
rm model/chat_template.jinja
echo '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}' >data.jsonl
error_of ebb data model=model dataset=data.jsonl
