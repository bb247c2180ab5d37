ebb sft model=m dataset=d.jsonl output_dir=o memory_budget=1GiB enable_activation_offloading=true
