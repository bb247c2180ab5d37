ebb configs cat sft-lora >a.yaml
cmp a.yaml "$SOURCE/configs/sft-lora.yaml"
