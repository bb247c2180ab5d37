# One after the other or layer by layer, with weights in host memory and a last step of fewer: the same numbers.
. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 22
numbers() { grep -oE '"(step|loss|grad_norm|mean_token_accuracy|eval_loss|num_tokens)": [^,}]*' "$1/metrics.jsonl"; }
for method in use_peft=true use_peft=false; do
    run="$method memory_budget=64MiB per_device_train_batch_size=2 gradient_accumulation_steps=4 num_train_epochs=2
        learning_rate=1e-3 validation_split=0.1 eval_strategy=epoch"
    [ $method = use_peft=true ] && run="$run lora_dropout=0.1 offload_params=cpu" || run="$run offload_optimizer=cpu"
    for order in depth_first breadth_first; do
        # shellcheck disable=SC2086
        train $run output_dir=$order gradient_accumulation_order=$order >$order.out 2>$order.err || cat $order.err
        numbers $order >$order.txt
    done
    wc -l <depth_first.txt
    cmp depth_first.txt breadth_first.txt && echo "$method: the same numbers"
    for file in depth_first/*.safetensors; do cmp "$file" "breadth_first/${file#*/}" && echo "the same $(basename "$file")"; done
    grep -o '"micro_batches_at_once": [0-9]*' depth_first/run.json breadth_first/run.json
    grep -oE "in from there (in each micro-batch|for [0-9]* micro-batches at once)" depth_first.err breadth_first.err
    rm -r depth_first breadth_first
done
