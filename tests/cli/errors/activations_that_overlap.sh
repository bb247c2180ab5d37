ebb sft model=m dataset=d.jsonl output_dir=o activations="[{layers: 0-3, x: keep}, {layers: 2-, x: keep}]"
