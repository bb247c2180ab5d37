ebb sft model=m dataset=d.jsonl output_dir=o max_steps=10 num_train_epochs=1
