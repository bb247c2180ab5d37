printf "the caf\303\251 \346\275\256\na\000b\n" | ebb tokenize "$SOURCE/tests/golden/tokenizer_marked" --json
printf "the \346\275\256<|endoftext|>\n" | ebb tokenize "$SOURCE/tests/golden/tokenizer_small" --json
