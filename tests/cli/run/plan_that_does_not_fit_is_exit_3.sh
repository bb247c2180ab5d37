ebb init tiny-llama model >/dev/null
ebb plan model=model max_length=256 memory_budget=1MiB >table.txt 2>err.txt
code=$?
grep -c "does not fit" table.txt
sed -e "s/needs [0-9.]* MiB.*$/needs .../; s/^  needs:.*/  needs: .../; s/memory_budget: [0-9]*[A-Za-z]*$/memory_budget: .../; s/ (needs.*//" err.txt | head -n 4 >&2
exit $code
