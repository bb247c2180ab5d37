ebb configs remove sft-lora
