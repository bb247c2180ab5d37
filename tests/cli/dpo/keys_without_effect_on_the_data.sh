. "$SOURCE/tests/cli/kit.sh"
make_model; make_pairs pairs.jsonl 2; make_verdicts verdicts.jsonl 2
error_of prefer kto_chosen_weight=2
error_of prefer undesirable_weight=1
error_of ebb dpo model=model dataset=verdicts.jsonl output_dir=run label_smoothing=0.1
error_of prefer completion_only_loss=false
error_of prefer packing=true packing_strategy=wrapped max_length=64
