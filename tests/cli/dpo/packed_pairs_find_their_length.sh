. "$SOURCE/tests/cli/kit.sh"
make_model
for i in 1 2 3 4 5 6; do
    echo "{\"prompt\": \"what is $i?\", \"chosen\": \" it is $i\", \"rejected\": \" no\"}"
done >pairs.jsonl
for loss in sigmoid kto; do
    ebb dpo model=model dataset=pairs.jsonl output_dir=$loss threads=1 max_steps=1 packing=true use_peft=true \
        loss_type=$loss save_strategy=no 2>&1 >/dev/null | grep max_length
done
