echo "the tide" | ebb tokenize "$SOURCE/tests/golden/tokenizer_marked" --add-special-tokens=false
