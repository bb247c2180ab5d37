# Half of the samples are longer than a row. SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
i=0
while [ $i -lt 6 ]; do
    i=$((i + 1))
    echo '{"text": "short"}'
    printf '{"text": "%040d"}\n' $i
done >data.jsonl
for keys in "packing=true packing_strategy=bfd_split" "packing=true overlong=drop" overlong=truncate; do
    # shellcheck disable=SC2086
    ebb data model=model dataset=data.jsonl max_length=16 samples=0 $keys 2>/dev/null
    echo
done
error_of ebb data model=model dataset=data.jsonl max_length=16 packing=true
