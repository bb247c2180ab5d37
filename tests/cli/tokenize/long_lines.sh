model=$SOURCE/tests/golden/tokenizer_marked
head -c 300000 /dev/zero | tr "\000" " " >text
echo >>text
ebb tokenize "$model" --add_special_tokens=false <text | ebb tokenize "$model" --decode >back
cmp text back && echo same
