. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
ebb init tiny-qwen3 teacher --tokenizer bytes >/dev/null
printf 'recipe: kd\nmodel: model\nteacher: teacher\ndataset: data.jsonl\noutput_dir: run\n' >kd.yaml
ebb plan kd.yaml threads=1 2>&1 | sizes
ebb plan recipe=kd model=model teacher=teacher max_length=16 threads=1 json=true | grep -E '"teacher|"weights'
ebb kd kd.yaml threads=1 max_steps=1 >/dev/null 2>&1
sed -n 1,5p run/run.json
