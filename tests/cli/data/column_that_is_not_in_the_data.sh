. "$SOURCE/tests/cli/kit.sh"
make_model
printf 'question,answer\nwhat?,that.\n' >data.csv
train dataset=data.csv 'dataset_columns={prompt: questoin, completion: answer}'
# SPDX-License-Identifier: Apache-2.0
