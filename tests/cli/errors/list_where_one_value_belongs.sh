printf "learning_rate: [1, 2]\n" >conf.yaml
ebb sft conf.yaml
