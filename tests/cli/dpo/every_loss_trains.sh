. "$SOURCE/tests/cli/kit.sh"
make_model; make_pairs pairs.jsonl 8
for loss in sigmoid ipo hinge orpo simpo kto; do
    prefer loss_type=$loss use_peft=true per_device_train_batch_size=4 max_steps=2 overwrite_output_dir=true 2>&1 |
        steady | grep -E '^(max_length|loss|step|plan|[0-9]+ opt)'
    sed -n 2p run/metrics.jsonl | grep -oE '"(rewards|logps|kl|nll)[^"]*"' | tr '\n' ' '
    echo
done
