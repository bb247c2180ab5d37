. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 8
for seed in 5 6; do
    ebb init tiny-llama teacher$seed --tokenizer bytes seed=$seed >/dev/null
    ebb kd model=model teacher=teacher$seed dataset=data.jsonl save_teacher=saved$seed threads=1 >/dev/null 2>&1
done
go() {
    ebb kd model=model dataset=data.jsonl output_dir=run threads=1 max_steps=4 use_peft=true save_strategy=steps \
        save_steps=2 "$@"
}
go teacher_logits=saved5 >/dev/null 2>&1
go teacher_logits=saved5 resume_from_checkpoint=run/checkpoint-2 2>&1 >/dev/null | grep -c "going on"
error_of go teacher_logits=saved6 resume_from_checkpoint=run/checkpoint-2 2>&1 >/dev/null | sed 's/[0-9a-f]\{16\}/HASH/g'
error_of go teacher=teacher5 resume_from_checkpoint=run/checkpoint-2 2>&1 >/dev/null | sed 's/[0-9a-f]\{16\}/HASH/g'
