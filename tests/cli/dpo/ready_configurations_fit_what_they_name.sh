for model in qwen2.5-7b llama-3.1-8b; do
    mkdir $model
    ebb configs cat $model >$model/config.json
    ebb plan "$SOURCE/configs/dpo-$model.yaml" model_name_or_path=$model device=cpu threads=2 2>/dev/null || echo "exit code $?"
    echo
done
# Beside the run the reference would not fit into device memory.
ebb plan "$SOURCE/configs/dpo-llama-3.1-8b.yaml" model_name_or_path=llama-3.1-8b device=cpu threads=2 \
    precompute_ref_log_probs=false offload_params=false offload_optimizer=false 2>/dev/null | grep -E '^(weights|reference|memory_budget)'
