echo 5 100000 | ebb tokenize "$SOURCE/tests/golden/tokenizer_small" --decode
