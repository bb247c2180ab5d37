# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
cat >data.jsonl <<'END'
{"text": "good"}
{"txt": "no text"}
{"text": 5}
{"text": "good too"}
END
ebb data model=model dataset=data.jsonl max_bad_records=2 samples=0 2>/dev/null
error_of ebb data model=model dataset=data.jsonl max_bad_records=1
