printf "3 4\n5 x6 7\n" | ebb tokenize "$SOURCE/tests/golden/tokenizer_small" --decode
