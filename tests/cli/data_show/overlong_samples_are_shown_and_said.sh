# Training would stop at them. SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
printf '{"text": "%0300d"}\n{"text": "short"}\n' 1 >data.jsonl
ebb data model=model dataset=data.jsonl samples=0 max_length=100 2>err | sed -n '/^samples/p; /^micro/,$p'
grep warning err
error_of ebb data model=model dataset=data.jsonl samples=0 max_length=100 packing=true
