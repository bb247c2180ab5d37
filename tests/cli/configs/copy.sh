ebb configs copy sft-full.yaml my.yaml
cmp my.yaml "$SOURCE/configs/sft-full.yaml"
