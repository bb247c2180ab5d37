go() {
    ebb dpo model=m dataset=d.jsonl output_dir=o "$@"
}
go loss_type=orpo ref_model=r
go loss_type=simpo precompute_ref_log_probs=true
go loss_type=ipo label_smoothing=0.1
go loss_type=hinge simpo_gamma=1
go simpo_gamma=1
go loss_type=sigmoid desirable_weight=2
go loss_type=simpo kto_rejected_weight=2
go kd_ratio=1
ebb sft model=m dataset=d.jsonl output_dir=o loss_type=ipo
ebb kd model=m teacher=t dataset=d.jsonl output_dir=o ref_model=r
ebb plan model=m max_length=8 loss_type=ipo
