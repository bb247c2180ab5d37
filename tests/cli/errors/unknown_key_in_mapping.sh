printf "optimizer:\n  _component_: torch.optim.AdamW\n  learning_rat: 1e-4\n" >conf.yaml
ebb sft conf.yaml
