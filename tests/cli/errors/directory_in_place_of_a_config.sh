mkdir model
ebb sft model
