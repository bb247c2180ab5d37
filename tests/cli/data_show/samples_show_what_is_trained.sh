# Text as the model sees it, special tokens and characters of several tokens included; control
# characters are spelled out. SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
cat >data.jsonl <<'END'
{"prompt": "what is 1?", "completion": " un café €"}
{"prompt": "é", "completion": "\u001b[31mred\u0007\ttab\nline"}
{"prompt": "what is 3?", "completion": " three"}
END
ebb data model=model dataset=data.jsonl
