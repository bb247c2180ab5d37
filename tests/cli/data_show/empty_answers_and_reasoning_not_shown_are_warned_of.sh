# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
cat >data.jsonl <<'END'
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]}
END
ebb data model=model dataset=data.jsonl samples=0 2>&1 >/dev/null | grep warning
cat >data.jsonl <<'END'
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "Hm. So b."}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "train": false}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}
END
ebb data model=model dataset=data.jsonl samples=0 2>&1 >/dev/null | grep warning
