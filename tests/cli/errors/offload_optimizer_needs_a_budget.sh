ebb sft model=m dataset=d.jsonl output_dir=o offload_optimizer=cpu
