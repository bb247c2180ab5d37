. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 8
for method in use_peft=true use_peft=false; do
    train $method per_device_train_batch_size=4 memory_budget=1MiB 2>err.txt
    least=$(sed -n "s/.*try:   memory_budget: \([0-9]*\)KiB.*/\1/p" err.txt)
    ebb sft model=model dataset=data.jsonl output_dir=$method threads=1 $method per_device_train_batch_size=4 max_steps=1 \
        memory_budget=${least}KiB >out.txt 2>err.txt
    echo "$method: exit $? with what was proposed"
    ebb plan model=model dataset=data.jsonl $method per_device_train_batch_size=4 memory_budget=$((least - 1))KiB >/dev/null 2>&1
    echo "$method: exit $? with 1 KiB less"
done
