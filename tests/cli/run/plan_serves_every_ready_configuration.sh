ebb init tiny-llama model --tokenizer bytes >/dev/null
cp -r model teacher
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    echo "{\"prompt\": \"what is $i?\", \"completion\": \" it is $i\"}"
done >data.jsonl
sed 's/"completion"/"rejected": " no", "chosen"/' data.jsonl >pairs.jsonl
for file in "$SOURCE"/configs/*.yaml; do
    models="model_name_or_path=model dataset_name=data.jsonl"
    case $file in */kd-*) models="$models teacher_model_name_or_path=teacher" ;; esac
    case $file in */dpo-*) models="model_name_or_path=model dataset_name=pairs.jsonl" ;; esac
    # shellcheck disable=SC2086
    ebb plan "$file" $models memory_budget=1GiB json=true >plan.json 2>err.txt || { echo "$file"; cat err.txt; }
    grep -o "\"fits\": [a-z]*" plan.json
done
