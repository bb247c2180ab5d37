ebb sft fp16=true
