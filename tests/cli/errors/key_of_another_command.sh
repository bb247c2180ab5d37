ebb eval lora_r=8
