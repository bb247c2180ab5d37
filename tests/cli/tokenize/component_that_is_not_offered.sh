mkdir model
sed "s/\"type\": \"BPE\"/\"type\": \"Unigram\"/" "$SOURCE/tests/golden/tokenizer_small/tokenizer.json" >model/tokenizer.json
ebb tokenize model
