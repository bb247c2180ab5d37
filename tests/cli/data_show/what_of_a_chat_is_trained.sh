# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
cat >data.jsonl <<'END'
{"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "See you."}]}
END
for key in last_turn_only_loss=true assistant_only_loss=false; do
    echo "## $key"
    ebb data model=model dataset=data.jsonl chat_template=zephyr $key 2>/dev/null | sed -n '/^==/,/^$/p; /^ends/p'
done
