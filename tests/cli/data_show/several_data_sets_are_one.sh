# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
make_data a.jsonl 4
echo '{"question": "q", "answer": "a"}' >b.jsonl
echo '[{"text": "plain"}, {"text": "text"}]' >c.json
cat >conf.yaml <<'END'
model_name_or_path: model
datasets:
  - a.jsonl
  - path: b.jsonl
    columns: {prompt: question, completion: answer}
    weight: 3
  - {path: c.json, format: text, split: "train[1:]"}
END
ebb data conf.yaml records=1,2 2>/dev/null | sed '/^micro/,$d'
