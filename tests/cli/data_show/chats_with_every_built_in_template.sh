# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
cat >data.jsonl <<'END'
{"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "See you."}]}
END
for name in alpaca chatml llama2 llama3 zephyr; do
    echo "## $name"
    ebb data model=model dataset=data.jsonl chat_template=$name 2>/dev/null | sed '/^data/,$d'
done
