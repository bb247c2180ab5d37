ebb sft conf.yaml
