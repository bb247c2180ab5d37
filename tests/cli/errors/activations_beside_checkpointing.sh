ebb sft model=m dataset=d.jsonl output_dir=o activations="{x: keep}" gradient_checkpointing=true
