printf "lora_rank: 0\n" >conf.yaml
ebb sft conf.yaml
