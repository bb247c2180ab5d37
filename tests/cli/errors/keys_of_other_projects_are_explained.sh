cat >conf.yaml <<END
base_model: org/model
dataset_name: d.jsonl
output_dir: o
adapter: lora
micro_batch_size: 2
bf16: true
use_liger_kernel: true
report_to: [wandb]
optimizer:
  _component_: torch.optim.AdamW
  fused: true
  lr: 1e-4
END
ebb sft conf.yaml
