printf "lr: 1e-4\nlearning_rate: 2e-4\n" >conf.yaml
ebb sft conf.yaml
