ebb sft model=m dataset=d output_dir=o report_to=tensorboard,mlflow
