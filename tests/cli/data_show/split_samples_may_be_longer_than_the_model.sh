# max_length: auto is then what the model has positions for. SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
printf '{"text": "%03000d"}\n{"text": "short"}\n' 1 >data.jsonl
ebb data model=model dataset=data.jsonl samples=0 packing=true packing_strategy=wrapped 2>/dev/null |
    sed -n '/^samples/p; /^micro/,$p'
error_of ebb data model=model dataset=data.jsonl samples=0 packing=true
