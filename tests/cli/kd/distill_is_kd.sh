. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
ebb help distill >a.txt
ebb help kd | cmp - a.txt && echo "the same help"
ebb distill --help | cmp - a.txt && echo "the same help"
ebb distill model=model teacher=model dataset=data.jsonl output_dir=run threads=1 max_steps=1 2>/dev/null | steady
sed -n 2,3p run/run.json
ebb distil
