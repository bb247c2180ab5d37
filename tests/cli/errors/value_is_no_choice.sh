ebb sft lr_scheduler_type=polynomial
