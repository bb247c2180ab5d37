printf "model: m\nprofiler:\n  enabled: false\n" >conf.yaml
ebb sft conf.yaml
