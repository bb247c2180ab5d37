ebb dpo model=m dataset=d.jsonl output_dir=o beta=0
ebb plan recipe=dpo model=m max_length=8 beta=-1
