ebb sft --lora-r
