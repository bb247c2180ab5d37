echo mine >my.yaml
ebb configs copy sft-full.yaml my.yaml
code=$?
cat my.yaml
exit $code
