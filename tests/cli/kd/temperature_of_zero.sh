ebb kd model=m teacher=t temperature=0 dataset=d.jsonl output_dir=o
