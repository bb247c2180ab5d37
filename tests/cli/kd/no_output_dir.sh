ebb kd model=m teacher=t dataset=d.jsonl
