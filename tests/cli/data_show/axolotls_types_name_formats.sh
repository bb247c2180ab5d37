# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
echo '{"instruction": "a", "output": "b", "text": "c"}' >data.jsonl
echo '{"messages": [{"role": "user", "content": "d"}, {"role": "assistant", "content": "e"}], "text": "f"}' >chat.jsonl
cat >conf.yaml <<'END'
model_name_or_path: model
datasets:
  - path: data.jsonl
    format: alpaca
  - {path: data.jsonl, type: completion}
  - type: chat_template
    path: chat.jsonl
END
ebb data conf.yaml 2>/dev/null | sed '/^data /,$d'
sed 's/format: alpaca/type: alpaca/' conf.yaml >other.yaml
error_of ebb data other.yaml
sed 's/format: alpaca/&\n    type: completion/' conf.yaml >twice.yaml
error_of ebb data twice.yaml
