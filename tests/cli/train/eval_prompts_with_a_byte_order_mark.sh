# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 2
printf '\357\273\277one\ntwo\n' >prompts.txt
printf '\357\273\277{"prompt": "three"}\n' >prompts.jsonl
for file in prompts.txt prompts.jsonl; do
    train eval_prompts=$file eval_max_new_tokens=1 overwrite_output_dir=true max_steps=1 2>&1 |
        sed -n '/^ebb: /p; s/->.*/->/; /^sample after step 1/p'
done
