. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 40
train learning_rate=0.5 num_train_epochs=50 per_device_train_batch_size=4 validation_split=0.1 eval_strategy=epoch \
    load_best_model_at_end=true early_stopping_patience=2 save_total_limit=1 optim=sgd lr_scheduler_type=constant \
    max_grad_norm=0 >out.txt 2>err.txt
echo "exit $?"
grep -o "stopped early" out.txt
grep -o "the result is the best model" err.txt
ls run | grep -c checkpoint
