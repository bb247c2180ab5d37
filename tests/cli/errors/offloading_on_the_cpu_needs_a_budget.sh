ebb sft model=m dataset=d.jsonl output_dir=o activation_offloading=true
