# Samples above max_length are split here as there, and none is refused.
# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 10
for strategy in bfd_split wrapped; do
    cat >conf.yaml <<END
model_name_or_path: model
dataset_name: data.jsonl
output_dir: $strategy
threads: 1
max_length: 16
packing: true
packing_strategy: $strategy
max_steps: 1
learning_rate: 1e-9
END
    ebb sft conf.yaml >/dev/null 2>&1 || echo "sft failed"
    ebb eval conf.yaml model=$strategy 2>/dev/null | grep '^labels'
done
error_of ebb eval model=model dataset=data.jsonl max_length=16
