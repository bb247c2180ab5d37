ebb plan model=m max_length=10 eval_prompts='[a, ""]'
