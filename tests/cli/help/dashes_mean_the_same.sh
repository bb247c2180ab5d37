ebb --help >help.txt
ebb help | cmp - help.txt
ebb sft --help >sft.txt
ebb help sft | cmp - sft.txt
ebb -h | cmp - help.txt
