. "$SOURCE/tests/cli/kit.sh"
make_model
printf 'question,answer\n"why, ""you""\nask",because\nwho,me\n' >a.csv
printf 'answer\tquestion\nbecause\t"why, ""you""\nask"\nme\twho\n' >a.tsv
one='{"question": "why, \"you\"\nask", "answer": "because"}' two='{"question": "who", "answer": "me"}'
printf '%s\n' "$one" "$two" >a.jsonl
printf '[%s, %s]' "$one" "$two" >a.json
mkdir d
cp a.csv d/train-0.csv
gzip -n <a.jsonl >d/train-1.jsonl.gz
gzip -n <a.tsv >a.tsv.gz
for data in a.csv a.tsv a.jsonl a.json a.tsv.gz d; do
    ebb sft model=model "dataset=$data" 'dataset_columns={prompt: question, completion: answer}' output_dir=run \
        overwrite_output_dir=true threads=1 max_steps=1 2>said.txt >/dev/null || cat said.txt >&2
    sed -n '/samples of format/p' said.txt
done
