. "$SOURCE/tests/cli/kit.sh"
shared=${EBB_SHARED:-$SOURCE/../shared}
data=$shared/data/dpo_en_demo.json
[ -f "$data" ] || { echo "no $data" >&2; exit 77; }
make_model
ebb dpo model=model dataset="$data" eval_dataset="$data" dataset_max_samples=40 max_length=128 overlong=truncate \
    truncation_side=left use_peft=true learning_rate=3e-3 per_device_train_batch_size=8 max_steps=40 \
    eval_strategy=steps eval_steps=20 save_strategy=no output_dir=run threads=1 >/dev/null 2>&1
tail -n 1 run/metrics.jsonl | tr , '\n' | awk '/eval_rewards.accuracies/ { print ($2 > 0.9) ? "accuracy above 0.9" : $0 }
    /eval_rewards.margins/ { print ($2 > 1) ? "margin above 1" : $0 }'
