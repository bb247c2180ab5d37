ebb plan model=m max_length=8 teacher=t
ebb plan model=m max_length=8 recipe=kd
