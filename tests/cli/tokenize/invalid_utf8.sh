printf "fine\nab\377c\n" | ebb tokenize "$SOURCE/tests/golden/tokenizer_small"
