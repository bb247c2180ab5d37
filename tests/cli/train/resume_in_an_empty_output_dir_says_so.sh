. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
mkdir run
for dir in run other; do
    train use_peft=true max_steps=1 resume_from_checkpoint=true output_dir=$dir 2>&1 | grep "^resume"
done
