. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
mkdir teacher
cp model/config.json teacher
ebb plan recipe=kd model=model teacher=teacher max_length=16 json=true 2>/dev/null | grep '"teacher'
error_of ebb kd model=model teacher=teacher dataset=data.jsonl output_dir=run threads=1
