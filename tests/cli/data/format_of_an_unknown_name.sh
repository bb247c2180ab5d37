. "$SOURCE/tests/cli/kit.sh"
make_model
echo '{"text": "a"}' >data.jsonl
train dataset_format=mesages
train dataset_format=parquet
ebb sft model=model datasets=data.jsonl output_dir=run
# SPDX-License-Identifier: Apache-2.0
