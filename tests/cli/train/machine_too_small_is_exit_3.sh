. "$SOURCE/tests/cli/kit.sh"
make_model
# Terabytes: a plan reads no weights.
sed -i 's/"hidden_size": [0-9]*/"hidden_size": 65536/; s/"intermediate_size": [0-9]*/"intermediate_size": 262144/
    s/"num_hidden_layers": [0-9]*/"num_hidden_layers": 400/; s/"head_dim": [0-9]*/"head_dim": 128/' model/config.json
ebb plan model=model max_length=64 threads=1 >table.txt 2>err.txt
code=$?
sizes <err.txt | head -n 4 >&2
exit $code
