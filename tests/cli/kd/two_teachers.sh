ebb kd model=m teacher=t teacher_logits=d dataset=d.jsonl output_dir=o
