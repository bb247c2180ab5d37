ebb plan recipe=kd model=m teacher=t kd_loss=reverse_kl beta=0.5 max_length=64
