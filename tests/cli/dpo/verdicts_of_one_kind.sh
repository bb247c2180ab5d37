. "$SOURCE/tests/cli/kit.sh"
make_model; make_verdicts verdicts.jsonl 8
for kind in true false; do
    grep "\"label\": $kind" verdicts.jsonl >$kind.jsonl
    ebb kto model=model dataset=verdicts.jsonl eval_dataset=$kind.jsonl output_dir=$kind threads=1 use_peft=true max_steps=1 \
        per_device_train_batch_size=4 eval_strategy=epoch 2>&1 | grep '^evaluation' | sed 's/-*[0-9][0-9.e-]*m*s*/N/g'
    tail -n 1 $kind/metrics.jsonl | grep -oE '"eval_(rewards|kl)[^"]*"'
done
