. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 40
for signal in INT TERM; do
    ebb sft model=model dataset=data.jsonl output_dir=$signal threads=1 use_peft=true max_steps=1000000 2>err.txt &
    pid=$!
    tries=0
    until [ -s $signal/metrics.jsonl ] || [ $tries -gt 600 ]; do sleep 0.1; tries=$((tries + 1)); done
    kill -$signal $pid
    wait $pid
    echo "$signal: exit $?"
    tail -n 2 err.txt | sed "s/step [0-9]* of/step N of/; s/checkpoint-[0-9]*/checkpoint-N/"
    steps=$(wc -l <$signal/metrics.jsonl)
    [ -f $signal/checkpoint-$steps/manifest.json ] || echo "no checkpoint of step $steps"
    ebb sft model=model dataset=data.jsonl output_dir=$signal threads=1 use_peft=true max_steps=$((steps + 1)) \
        resume_from_checkpoint=true >/dev/null 2>err.txt
    echo "resumed: exit $?, $(($(wc -l <$signal/metrics.jsonl) - steps)) step more"
done
