# What was measured is kept when a signal comes, and not measured again.
. "$SOURCE/tests/cli/kit.sh"
make_model
bench="ebb bench model=model threads=1 steps=40 modes=none output=out"
$bench --sweep length=16,8k 2>said.txt &
for i in $(seq 150); do
    grep -q '"loss"' out/results.json 2>/dev/null && break
    sleep 0.2
done
kill -TERM $!
wait $!
echo $?
measured <said.txt
grep '"loss"' out/results.json >before.txt
$bench --sweep length=16,24 2>said.txt | tail -n 1
measured <said.txt
grep '"loss"' out/results.json | head -n 1 | cmp - before.txt
grep -c '"loss"' out/results.json
error_of $bench --sweep length=16,24 learning_rate=1e-3
