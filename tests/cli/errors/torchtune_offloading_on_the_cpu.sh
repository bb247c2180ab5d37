ebb sft model=m dataset=d.jsonl output_dir=o enable_activation_checkpointing=true enable_activation_offloading=true
