# Long answers need a cache. What the run needs without it is what a plan without it says.
# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
error_of train use_peft=true memory_budget=1MiB "eval_prompts=[ahoy]" eval_max_new_tokens=200 2>err.txt
code=$?
sizes <err.txt >&2
ebb plan model=model dataset=data.jsonl use_peft=true memory_budget=1MiB threads=1 2>/dev/null |
    sed -n 's/^device memory *//p' >plan.txt
grep -qF "leave 'eval_prompts' out (needs $(cat plan.txt)," err.txt || { cat err.txt; cat plan.txt; }
exit $code
