ebb kd model=m dataset=d.jsonl output_dir=o
