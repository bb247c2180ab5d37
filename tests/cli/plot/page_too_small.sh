# The size that is proposed will do; how large it is depends on the machine's fonts.
lengths=$SOURCE/tests/fuzz/corpus/results/lengths.json
ebb plot "$lengths" --width 300 --height 200 2>said.txt
sed 's/[0-9][0-9]* --height [0-9]*/N --height N/' said.txt >&2
ebb plot "$lengths" $(sed -n 's/ *try: *//p' said.txt) >/dev/null && ls plot.png
