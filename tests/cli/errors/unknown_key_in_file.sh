printf "base_model: m\ndataset_name: d\noutput_dir: o\nseq_length_max: 3\n" >conf.yaml
ebb sft conf.yaml
