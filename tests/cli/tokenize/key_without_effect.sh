ebb tokenize "$SOURCE/tests/golden/tokenizer_small" --skip_special_tokens=false
