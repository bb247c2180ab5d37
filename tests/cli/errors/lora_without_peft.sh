printf "model: m\ndataset: d.jsonl\noutput_dir: o\nlora_r: 8\n" >conf.yaml
ebb sft conf.yaml
