. "$SOURCE/tests/cli/kit.sh"
make_sailor
printf 'one\n\ntwo\n' >prompts.txt
printf '%s\n' '{"messages": [{"role": "user", "content": "land"}, {"role": "assistant", "content": "no"}]}' \
    '{"prompt": [{"role": "user", "content": "ahoy"}]}' '{"prompt": "three"}' >prompts.jsonl
again() {
    ebb sft model=sailor dataset=sailor.jsonl output_dir=again overwrite_output_dir=true threads=1 \
        max_steps=1 learning_rate=1e-9 eval_max_new_tokens=6 "$@" 2>&1 | grep 'sample after step 1'
}
again eval_prompts=prompts.txt | sed 's/->.*/->/'
again eval_prompts=prompts.jsonl | sed 's/"three" ->.*/"three" ->/'
