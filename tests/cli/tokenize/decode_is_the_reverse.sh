model=$SOURCE/tests/golden/tokenizer_marked
printf "  the tide  \n\n\346\275\256 and\tmore <s x</s>\n" >text
ebb tokenize "$model" --add_special_tokens=false <text | ebb tokenize "$model" --decode --skip_special_tokens=false >back
cmp text back && echo same
ebb tokenize "$model" <text | ebb tokenize "$model" --decode
ebb tokenize "$model" --json <text | ebb tokenize "$model" --json --decode
