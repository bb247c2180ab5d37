. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 12
for overlong in drop truncate; do
    ebb sft model=model dataset=data.jsonl output_dir=$overlong threads=1 max_length=20 overlong=$overlong max_steps=1 2>&1 |
        grep -E "^(data|ebb: warning)"
done
