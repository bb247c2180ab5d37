printf "{\"ids\": []}\n{\"ids\": [1,}\n" | ebb tokenize "$SOURCE/tests/golden/tokenizer_small" --decode --json
