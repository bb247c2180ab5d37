# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
make_data data.jsonl 101
ebb data model=model dataset=data.jsonl 2>/dev/null | grep '^=='
ebb data model=model dataset=data.jsonl --samples 1 2>/dev/null | grep '^=='
ebb data model=model dataset=data.jsonl --samples 0 2>/dev/null | grep '^=='
ebb data model=model dataset=data.jsonl --records 7,3 2>/dev/null | grep '^=='
