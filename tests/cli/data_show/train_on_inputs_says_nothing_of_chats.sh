# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
echo '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}' >data.jsonl
error_of ebb data model=model dataset=data.jsonl chat_template=zephyr train_on_inputs=true
