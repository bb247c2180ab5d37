printf "packing: [\n" >conf.yaml
ebb sft conf.yaml
