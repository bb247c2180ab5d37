# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 30
drawn() {
    command=$1 seed=$2
    ebb "$command" model=model "datasets=[{path: data.jsonl, weight: 0.5}]" seed="$seed" threads=1 \
        output_dir=run-$seed dataset_cache=false $3 2>&1 | sed -n 's/.* samples of format [a-z_]*, \([^;]* trained\).*/\1/p'
}
drawn sft 4 max_steps=1 >sft.txt
drawn plan 4 >plan.txt
cmp sft.txt plan.txt && cat plan.txt
for seed in 1 2 3; do drawn plan $seed; done | sort -u | wc -l | sed 's/^1$/the seed has no say/; s/^[23]$/other seeds, other samples/'
