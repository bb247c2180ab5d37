ebb kd model=m teacher=t kd_loss=reverse_kl beta=0.5 dataset=d.jsonl output_dir=o
