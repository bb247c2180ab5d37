ebb help sft lora
