# The size that is proposed will do.
lengths=$SOURCE/tests/fuzz/corpus/results/lengths.json
ebb plot "$lengths" --width 300 --height 200 2>said.txt
cat said.txt >&2
ebb plot "$lengths" $(sed -n 's/ *try: *//p' said.txt) | sed 's/pixels, .*/pixels/'
