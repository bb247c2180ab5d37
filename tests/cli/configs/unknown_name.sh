ebb configs cat sft-lor
