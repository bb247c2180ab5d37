. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 8
ebb init tiny-llama teacher --tokenizer bytes seed=5 >/dev/null
ebb init tiny-llama other --tokenizer bytes seed=6 >/dev/null
go() {
    ebb kd model=model $(unless teacher=teacher "$@") dataset=data.jsonl output_dir=run threads=1 max_steps=4 use_peft=true \
        save_strategy=steps save_steps=2 "$@"
}
go >/dev/null 2>&1
again="resume_from_checkpoint=run/checkpoint-2"
error_of go $again kd_loss=reverse_kl >/dev/null
error_of go $again temperature=2 >/dev/null
error_of go $again teacher=other 2>&1 >/dev/null | sed 's/[0-9a-f]\{16\}/HASH/g' >&2
train max_steps=4 use_peft=true $again >/dev/null 2>said.txt
sed -n '/^ebb: /,$p' said.txt >&2
