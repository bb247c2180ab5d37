. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 2
echo "[1, 2]" >>data.jsonl
train
