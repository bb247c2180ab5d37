ebb sft --lora-rnk 8
