printf "\355\240\200\n" | ebb tokenize "$SOURCE/tests/golden/tokenizer_small"
