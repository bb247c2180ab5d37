# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
make_data data.jsonl 1
ebb data model=model dataset=data.jsonl color=always 2>/dev/null | head -2 | od -c | sed 's/^[0-9]* *//'
NO_COLOR=1 ebb data model=model dataset=data.jsonl 2>/dev/null | head -2
