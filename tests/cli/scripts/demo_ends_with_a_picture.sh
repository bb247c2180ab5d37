# The last part of `./do demo`, with a model that has learned nothing: memory is the same. The picture is a PNG.
OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive
export OMP_NUM_THREADS OMP_WAIT_POLICY
ebb init "$SOURCE/examples/demo_model.json" base --tokenizer bytes >/dev/null
i=0
while [ $i -lt 200 ]; do
    i=$((i + 1))
    echo "{\"prompt\": \"The fox $i hides in the forest.\", \"completion\": \"{\\\"animal\\\": \\\"fox\\\", \\\"number\\\": $i}\"}"
done >facts.jsonl
sh "$SOURCE/examples/demo_picture.sh" ebb base facts.jsonl . >said.txt 2>&1 || { cat said.txt; exit 1; }
sed "s|^$(pwd)|HERE|" demo.txt
head -c 4 demo.png | od -An -c | tr -s ' '
test "$(wc -c <demo.png)" -gt 10000
