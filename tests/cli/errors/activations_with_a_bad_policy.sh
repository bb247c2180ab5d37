printf "model: m\ndataset: d.jsonl\noutput_dir: o\nactivations:\n  x: keep\n  o: away\n" >conf.yaml
ebb sft conf.yaml
