. "$SOURCE/tests/cli/kit.sh"
make_model; make_pairs pairs.jsonl 8
go() {
    prefer max_steps=4 use_peft=true save_strategy=steps save_steps=2 "$@"
}
go >/dev/null 2>&1
again="resume_from_checkpoint=run/checkpoint-2"
error_of go $again loss_type=ipo >/dev/null
error_of go $again beta=0.2 >/dev/null
error_of go $again label_smoothing=0.1 >/dev/null
cp -r run/checkpoint-2 two
go output_dir=again resume_from_checkpoint=two >/dev/null 2>&1
cmp run/adapter_model.safetensors again/adapter_model.safetensors && echo "resuming changed nothing"
go output_dir=other resume_from_checkpoint=two ref_model=model >/dev/null 2>said.txt
sed -n '/^ebb: /,$p' said.txt | sed 's/[0-9a-f]\{16\}/HASH/g' >&2
