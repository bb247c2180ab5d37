yes | ebb tokenize "$SOURCE/tests/golden/tokenizer_small" 2>error | head -n 1
cat error
