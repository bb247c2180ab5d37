printf "model: org/model\ndataset: d.jsonl\noutput_dir: o\nuse_peft: true\nlora_r: 8\n" >conf.yaml
ebb sft conf.yaml use_peft=false
