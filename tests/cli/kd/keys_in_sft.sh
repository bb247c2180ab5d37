printf "model: m\ndataset: d.jsonl\noutput_dir: o\nteacher: t\n" >conf.yaml
ebb sft conf.yaml
ebb sft model=m dataset=d.jsonl output_dir=o kd_ratio=1
printf "model: m\ndataset: d.jsonl\noutput_dir: o\nrecipe: kd\n" >conf.yaml
ebb sft conf.yaml
