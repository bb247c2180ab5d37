# The table on standard error, with its numbers masked, and the same in run.json; the result is the same.
. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 40
same="use_peft=true per_device_train_batch_size=20 num_train_epochs=4 activation_offloading=true memory_budget=64MiB"
# shellcheck disable=SC2086
train $same profile=true >out.txt 2>err.txt || cat err.txt
sed -n '/^where a step/,$p' err.txt |
    sed -e 's/[MGT]\(FLOP\/s\|B\/s\)/\1/g' -e '/^[ c]/s/ *[0-9][0-9.]*/ N/g' -e 's/ N %$/ N %/'
# shellcheck disable=SC2086
train $same output_dir=plain >/dev/null 2>plain.txt || cat plain.txt
cmp run/adapter_model.safetensors plain/adapter_model.safetensors
grep -c "where a step" plain.txt
grep -o '"\(profile\|steps_left_out\|ceilings\|copies_in\|matmul_flops_per_second\)":' run/run.json plain/run.json | sort
