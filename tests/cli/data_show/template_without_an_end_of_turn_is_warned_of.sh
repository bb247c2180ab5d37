# The byte tokenizer has no <|im_end|>. SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model
cat >data.jsonl <<'END'
{"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "See you."}]}
END
error_of ebb data model=model dataset=data.jsonl chat_template=chatml samples=0 | grep ends
