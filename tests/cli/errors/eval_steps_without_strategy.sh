ebb sft model=m dataset=d.jsonl output_dir=o eval_steps=10
