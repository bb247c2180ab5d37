. "$SOURCE/tests/cli/kit.sh"
make_model
i=0
while [ $i -lt 300 ]; do
    printf "{\"note\": \"%04000d\", \"prompt\": \"%d and one?\", \"completion\": \" %d\"}\n" 0 $i $((i + 1))
    i=$((i + 1))
done >data.jsonl
run() {
    ebb sft model=model dataset=data.jsonl output_dir=run overwrite_output_dir=true threads=1 max_steps=1 "$@" 2>&1 |
        grep -E "^(data|ebb: warning|read from|kept in)" | sed -e "s/[0-9a-f]\{32\}/HASH/" -e "s|$HOME|HOME|"
}
run dataset_cache=kept
run dataset_cache=kept
run dataset_cache=false
run                       # in the user's cache
run
for file in kept/*; do echo broken >"$file"; done
run dataset_cache=kept
: >file
run dataset_cache=file
