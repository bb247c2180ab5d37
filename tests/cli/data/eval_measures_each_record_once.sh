# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 10
for weight in 1 0.5 3; do
    ebb eval model=model "datasets=[{path: data.jsonl, weight: $weight}]" threads=1 2>/dev/null | grep -E '^(loss|labels)'
done | sort | uniq -c | sed 's/^ *//; s/loss .*/loss N/'
