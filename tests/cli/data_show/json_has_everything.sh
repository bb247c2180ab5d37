# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
printf '{"prompt": "a", "completion": "\\u20ac"}\n{"prompt": "b"}\n' >data.jsonl
ebb data model=model dataset=data.jsonl max_bad_records=1 json=true packing=true max_length=8 2>/dev/null
