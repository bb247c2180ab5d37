. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 40
train use_peft=true learning_rate=1e-3 per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=4 \
    memory_budget=1GiB gradient_checkpointing=true activation_offloading=true save_strategy=steps save_steps=2 \
    validation_split=0.1 eval_strategy=steps eval_steps=2 2>err.txt >out.txt
echo "sft: exit $?"
steady <err.txt
steady <out.txt
# Losses of two `ebb eval` that agree but for rounding.
near() {
    cat "$1" "$2" | awk '$1 == "loss" { d = $2 - d } END { exit !(d < 2e-5 && d > -2e-5) }'
}
ls run run/checkpoint-4
ebb sft model=model dataset=data.jsonl output_dir=straight threads=1 use_peft=true learning_rate=1e-3 \
    per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=4 "dataset_train_split=train[:90%]" 2>/dev/null >out.txt
cmp run/adapter_model.safetensors straight/adapter_model.safetensors && echo "offloading changed nothing"
cp -r run/checkpoint-2 two
ebb sft model=model dataset=data.jsonl output_dir=again threads=1 use_peft=true learning_rate=1e-3 \
    per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=4 "dataset_train_split=train[:90%]" \
    resume_from_checkpoint=two >/dev/null 2>&1
cmp run/adapter_model.safetensors again/adapter_model.safetensors && echo "resuming changed nothing"
ebb eval model=run dataset=data.jsonl threads=1 2>/dev/null >adapter.txt
ebb merge model=run output_dir=merged 2>/dev/null
ls merged
ebb eval model=merged dataset=data.jsonl threads=1 2>/dev/null >merged.txt
ebb eval model=model dataset=data.jsonl threads=1 2>/dev/null >base.txt
near adapter.txt merged.txt && echo "merging changed nothing"
near adapter.txt base.txt && echo "training changed nothing"
ebb generate model=run prompt="what is 3?" max_new_tokens=8 threads=1 2>/dev/null >a.txt
ebb generate model=merged prompt="what is 3?" max_new_tokens=8 threads=1 2>/dev/null >b.txt
cmp a.txt b.txt && echo "both say the same"
