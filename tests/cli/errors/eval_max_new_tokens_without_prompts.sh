ebb plan model=m max_length=10 eval_max_new_tokens=3
