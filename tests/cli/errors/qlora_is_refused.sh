printf "adapter: qlora\n" >conf.yaml
ebb sft conf.yaml
