# The last one holds, as scripts that end in "$@" want it; a slip is to be seen. A file's value, and the same again, are none.
echo "lr: 0.1" >conf.yaml
ebb sft conf.yaml lr=0.2 --learning-rate 0.3 lora_r=8 lora_r=8 max_steps=1 max_steps=2
