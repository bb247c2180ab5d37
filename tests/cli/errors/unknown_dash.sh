ebb sft -v
