# A run's folder, its file, and two runs of folders of one name.
. "$SOURCE/tests/cli/kit.sh"
make_model
make_data data.jsonl 6
train max_steps=3 >/dev/null 2>&1
ebb plot run | sed 's/pixels, .*/pixels/'
head -c 8 plot.png | od -c | head -n 1
ebb plot --output=run.SVG --width 800 run/metrics.jsonl | sed 's/pixels, .*/pixels/'
grep -c '</svg>' run.SVG
mkdir other
cp -R run other/run
cd run
ebb plot . ../other/run output=../two.png title='Two runs' height=500 | sed 's/pixels, .*/pixels/'
cd ..
ls
