# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
make_data data.jsonl 3
error_of ebb data model=model dataset=data.jsonl chat_template=qwen
