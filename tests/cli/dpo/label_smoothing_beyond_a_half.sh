ebb dpo model=m dataset=d.jsonl output_dir=o label_smoothing=0.6
