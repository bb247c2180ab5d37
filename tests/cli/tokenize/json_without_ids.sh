echo "{\"id\": [1]}" | ebb tokenize "$SOURCE/tests/golden/tokenizer_small" --decode --json
