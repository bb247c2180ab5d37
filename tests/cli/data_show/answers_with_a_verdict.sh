# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
cat >data.jsonl <<'END'
{"prompt": "one?", "completion": " 1", "label": true}
{"prompt": "two?", "completion": " 3", "label": false}
END
ebb data model=model dataset=data.jsonl recipe=dpo 2>/dev/null | grep -A1 '^=='
ebb data model=model dataset=data.jsonl 2>/dev/null | grep '^records'
