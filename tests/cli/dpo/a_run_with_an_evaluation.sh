. "$SOURCE/tests/cli/kit.sh"
make_model; make_pairs pairs.jsonl 12
prefer use_peft=true learning_rate=1e-2 per_device_train_batch_size=4 max_steps=12 validation_split=0.25 \
    eval_strategy=steps eval_steps=6 logging_steps=6 2>err.txt >out.txt
echo "exit $?"
number='-*[0-9.e+-]*'
steady <err.txt | sed "s/lr $number/lr N/; s/margin $number/margin N/"
ls run
tail -n 1 run/metrics.jsonl | grep -oE '"eval_[^"]*"'
tail -n 1 run/metrics.jsonl | grep -oE '"eval_rewards/accuracies": [^,]*'
