ebb sft packing=perhaps
