echo a | ebb tokenize "$SOURCE/tests/golden/tokenizer_small" >/dev/full
