. "$SOURCE/tests/cli/kit.sh"
make_model; make_pairs pairs.jsonl 4
plan() {
    ebb plan recipe=dpo model=model dataset=pairs.jsonl threads=1 "$@" 2>&1 >/dev/null | grep -v '^pairs.jsonl: \|^max_length: '
}
# What TRL, LLaMA-Factory, Axolotl and torchtune call it.
cat >trl.yaml <<END
loss_type: sigmoid
beta: 0.2
f_divergence_type: reverse_kl
reference_free: false
sync_ref_model: false
ref_model_sync_steps: 512
rpo_alpha: null
use_weighting: false
precompute_ref_batch_size: 4
use_logits_to_keep: false
generate_during_eval: false
END
plan trl.yaml
printf 'stage: dpo\npref_loss: simpo\npref_beta: 2.5\nsimpo_gamma: 1\npref_ftx: 0.0\n' >factory.yaml
plan factory.yaml
printf 'rl: kto\nrl_beta: 0.2\nkto_desirable_weight: 0.5\nkto_undesirable_weight: 1\n' >axolotl.yaml
plan axolotl.yaml
printf 'loss:\n  _component_: torchtune.rlhf.loss.DPOLoss\n  beta: 0.3\n  label_smoothing: 0.1\n' >torchtune.yaml
plan torchtune.yaml
for file in trl factory axolotl torchtune; do
    ebb dpo $file.yaml model=model dataset=pairs.jsonl output_dir=run threads=1 max_steps=1 use_peft=true \
        overwrite_output_dir=true 2>&1 | grep '^loss:'
    grep -E '"(label_smoothing|simpo_gamma|desirable_weight)' run/run.json
done
for key in max_prompt_length=512 max_completion_length=512 reference_free=true sync_ref_model=true rpo_alpha=1 pref_ftx=0.5 \
    use_weighting=true f_divergence_type=js_divergence gamma_beta_ratio=0.25 ref_adapter_name=ref generate_during_eval=true \
    rl=grpo disable_dropout=true force_use_ref_model=true; do
    plan $key
done
ebb sft model=model dataset=pairs.jsonl output_dir=run rl=dpo
