ebb sft fp16=false
