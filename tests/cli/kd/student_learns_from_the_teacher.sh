. "$SOURCE/tests/cli/kit.sh"
make_data data.jsonl 12
make_model teacher
make_model model
ebb sft model=teacher dataset=data.jsonl output_dir=taught threads=1 num_train_epochs=20 learning_rate=3e-3 \
    save_strategy=no >/dev/null 2>&1
ebb init tiny-qwen3 student --tokenizer bytes >/dev/null
ebb kd model=student teacher=taught dataset=data.jsonl output_dir=run threads=1 num_train_epochs=20 \
    learning_rate=3e-3 kd_ratio=1 kd_loss=forward_kl logging_steps=60 >/dev/null 2>said.txt
steady <said.txt | sed 's/lr [^ ]*/lr N/'
# Of a loss that began at some nats little is left, and the student answers as its teacher.
sed -n '1p;$p' run/metrics.jsonl | grep -oE '"kd_loss": [^,]*' | awk '{ print ($2 > 1) ? "far" : ($2 < 0.1) ? "near" : $2 }'
for model in taught run; do
    ebb generate model=$model prompt='what is 7?' temperature=0 max_new_tokens=8 threads=1 >$model.txt 2>/dev/null
done
cmp taught.txt run.txt && echo "the same answer"
