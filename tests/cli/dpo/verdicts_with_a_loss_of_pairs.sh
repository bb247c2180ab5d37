. "$SOURCE/tests/cli/kit.sh"
make_model; make_verdicts verdicts.jsonl 4
for loss in sigmoid ipo simpo; do
    error_of ebb dpo model=model dataset=verdicts.jsonl output_dir=run threads=1 loss_type=$loss
done
[ -e run ] && echo "run was made"
# Validation data belongs to the same loss.
make_pairs pairs.jsonl 4
error_of prefer eval_dataset=verdicts.jsonl eval_strategy=epoch
