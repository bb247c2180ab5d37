printf "the tide comes in\n\n q \346\275\256</s>\r\nno newline at the end" | ebb tokenize "$SOURCE/tests/golden/tokenizer_marked"
printf "The tide\n<|endoftext|>\n" | ebb tokenize "$SOURCE/tests/golden/tokenizer_small"
