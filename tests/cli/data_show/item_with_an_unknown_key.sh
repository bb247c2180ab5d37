# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
cat >conf.yaml <<'END'
model_name_or_path: model
datasets:
  - path: a.jsonl
    wieght: 3
END
error_of ebb data conf.yaml
