# A training configuration serves, but for what becomes of activations, and where its result goes.
. "$SOURCE/tests/cli/kit.sh"
make_model
make_data data.jsonl 40
cat >sft.yaml <<X
model_name_or_path: model
dataset_name: data.jsonl
output_dir: run
use_peft: true
lora_r: 4
packing: true
max_length: 512
gradient_checkpointing: true
num_train_epochs: 2
threads: 1
X
ebb bench sft.yaml --sweep length=32:128:x2 --modes none,checkpoint --steps 2 2>said.txt | measured
measured <said.txt
ls
ls bench-model
grep -c . bench-model/bench.log
# One line of what it is and one of what it gives: the loss is the same in both modes.
grep -E '"(kind|title|data|weights|steps|warm_up_steps|name|mode|length)"' bench-model/results.json
grep '"loss"' bench-model/results.json | sort | uniq -c | sed 's/"loss": .*/LOSS/'
grep -E '"(peak|predicted)_device_bytes"' bench-model/results.json | sed 's/.*: //' | uniq -c | sed 's/[0-9]*,$/BYTES/'
