. "$SOURCE/tests/cli/kit.sh"
make_data data.jsonl 12
make_model teacher
make_model model
ebb sft model=teacher dataset=data.jsonl output_dir=taught threads=1 num_train_epochs=20 learning_rate=3e-3 \
    save_strategy=no >/dev/null 2>&1
for k in 4 64 264; do
    ebb kd model=model teacher=taught dataset=data.jsonl save_teacher=saved$k teacher_top_k=$k threads=1 \
        teacher_dtype=float32 temperature=2 per_device_train_batch_size=4 2>/dev/null |
        sed 's/out [0-9.e-]* % of the probability (at most [0-9.e-]* %)/out N %/'
done
# What is predicted of its size, and what it takes.
ebb kd model=model teacher=taught dataset=data.jsonl save_teacher=bf16 teacher_top_k=8 threads=1 2>&1 >/dev/null |
    grep -o '[0-9.]* KiB of disk'
awk -v bytes="$(wc -c <bf16/teacher.safetensors)" 'BEGIN { printf "%.1f KiB\n", bytes / 1024 }'
go() {
    ebb kd model=model dataset=data.jsonl threads=1 max_steps=12 learning_rate=3e-3 kd_ratio=0.5 save_strategy=no \
        per_device_train_batch_size=4 "$@" >/dev/null 2>&1
}
go teacher=taught temperature=2 output_dir=live
# losses NAME: the teacher's part of the loss, a line a step.
losses() {
    grep -o '"kd_loss": [0-9.e-]*' "$1/metrics.jsonl" | cut -d ' ' -f 2
}
for k in 4 64 264; do
    go teacher_logits=saved$k output_dir=run$k
    losses run$k >run.txt
    losses live | paste - run.txt | awk -v k=$k '
        { gap = ($1 - $2) / $1; if (gap > most) most = gap; if (-gap > above) above = -gap; n++ }
        END { print k ":", n, "steps,", (most < 1e-4) ? "the same" : (most < 0.3) ? "a little below" : most,
              (above < 1e-4) ? "and never above" : "above by " above }'
done
