# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
cat >data.jsonl <<'END'
{"prompt": "one?", "chosen": " 1", "rejected": " not 1"}
{"prompt": "two?", "chosen": " 2", "rejected": " not 2"}
END
ebb data model=model dataset=data.jsonl recipe=dpo samples=1 2>/dev/null
echo "-- the same for sft"
ebb data model=model dataset=data.jsonl samples=1 2>/dev/null | head -3
