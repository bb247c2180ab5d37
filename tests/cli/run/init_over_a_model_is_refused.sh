ebb init tiny-llama model >/dev/null
ebb init tiny-llama model 2>err.txt
code=$?
grep -c "model" err.txt >/dev/null || echo "no reason given"
exit $code
