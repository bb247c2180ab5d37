. "$SOURCE/tests/cli/kit.sh"
make_model
for verdict in true false true false; do
    echo "{\"prompt\": \"is it?\", \"completion\": \" it is\", \"label\": $verdict}"
done >data.jsonl
go() {
    ebb dpo model=model $(unless dataset=data.jsonl "$@") output_dir=run threads=1 max_steps=2 \
        use_peft=true save_strategy=steps save_steps=1 "$@"
}
go >/dev/null 2>&1
sed 's/true/no/; s/false/true/; s/no/false/' data.jsonl >other.jsonl
error_of go dataset=other.jsonl resume_from_checkpoint=run/checkpoint-1 2>&1 >/dev/null | sed 's/[0-9a-f]\{16\}/HASH/g'
