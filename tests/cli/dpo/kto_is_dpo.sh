. "$SOURCE/tests/cli/kit.sh"
make_model; make_verdicts verdicts.jsonl 8
ebb help kto >a.txt
ebb help dpo | cmp - a.txt && echo "the same help"
ebb kto model=model dataset=verdicts.jsonl output_dir=run use_peft=true threads=1 per_device_train_batch_size=4 \
    max_steps=1 2>&1 | steady
sed -n 2p run/run.json
