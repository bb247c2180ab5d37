ebb sft model=m dataset=d.jsonl
