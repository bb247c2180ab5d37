# What auto says where a format's keys are there. SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
try() {
    echo "## $*" >&2
    train "$@"
}
echo '{"prompt": "a", "completion": 5}' >data.jsonl
try
echo '{"completion": "a", "label": "yes"}' >data.jsonl
try
printf 'messages,id\nhello,1\n' >data.csv
try dataset=data.csv
try dataset=data.csv dataset_format=messages
# SPDX-License-Identifier: Apache-2.0
