ebb sft model=org/model dataset=d.jsonl output_dir=o
