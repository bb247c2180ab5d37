# Event files beside metrics.jsonl: a step's values in one event, a second file of the run that resumes,
# none of the old ones after overwrite_output_dir.
. "$SOURCE/tests/cli/kit.sh"
make_model
make_data data.jsonl 8
report() {
    train per_device_train_batch_size=4 save_strategy=epoch "$@" >/dev/null 2>&1
}
# files DIR: how many event files, and how often their steps' losses are there.
files() {
    ls "$1" | sed 's/tfevents\.[0-9]*\..*\.[0-9]*\.\([0-9]*\)$/tfevents.SECONDS.HOST.PID.\1/'
    cat "$1"/events* | grep -a -o 'train/loss' | wc -l
}
report num_train_epochs=1 report_to=tensorboard
files run/runs
sleep 1
report num_train_epochs=2 report_to=tensorboard resume_from_checkpoint=true
files run/runs
report num_train_epochs=1 report_to=tensorboard overwrite_output_dir=true logging_dir=logs
files logs
ls -d run/runs 2>/dev/null || echo none in output_dir
