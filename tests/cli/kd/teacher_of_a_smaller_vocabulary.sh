. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
sed 's/"vocab_size": [0-9]*/"vocab_size": 256/' model/config.json >small.json
ebb init small.json teacher >/dev/null
error_of ebb kd model=model teacher=teacher dataset=data.jsonl output_dir=run threads=1
