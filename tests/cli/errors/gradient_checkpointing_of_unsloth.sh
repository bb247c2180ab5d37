ebb sft model=m dataset=d.jsonl output_dir=o use_gradient_checkpointing=unsloth
