. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 4
head -c 100000 model/model.safetensors >cut
mv cut model/model.safetensors
error_of train 2>error.txt
code=$?
sed "s/tensor .* ends at byte [0-9]*/tensor ... ends at byte .../" error.txt >&2
exit $code
