. "$SOURCE/tests/cli/kit.sh"
make_model; make_pairs pairs.jsonl 4
ebb plan recipe=dpo model=model dataset=pairs.jsonl threads=1 2>&1
go() {
    echo
    echo "$@"
    ebb plan recipe=dpo model=model max_length=64 per_device_train_batch_size=2 threads=1 "$@" |
        grep -E '^(micro|trained|weights|reference|gradients|device mem)'
}
go use_peft=true
go use_peft=true ref_model=model
go use_peft=true loss_type=orpo
go loss_type=kto
go precompute_ref_log_probs=true
printf 'recipe: dpo\nmodel: model\ndataset: pairs.jsonl\noutput_dir: run\nthreads: 1\nmax_steps: 1\n' >dpo.yaml
ebb plan dpo.yaml json=true 2>/dev/null | grep '"reference'
ebb dpo dpo.yaml >/dev/null 2>&1
sed -n 1,5p run/run.json
