. "$SOURCE/tests/cli/kit.sh"
make_model
printf 'PAR1\025\004\025\020' >data.parquet
cp data.parquet data.jsonl
mkdir saved
: >saved/data-00000-of-00001.arrow
echo '{}' >saved/state.json
: >data.jsonl.xz
for data in data.parquet data.jsonl saved data.jsonl.xz; do
    ebb sft model=model "dataset=$data" output_dir=run
    echo "$?"
done
