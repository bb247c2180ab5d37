. "$SOURCE/tests/cli/kit.sh"
make_model; make_data data.jsonl 10
ebb init tiny-llama teacher --tokenizer bytes seed=5 >/dev/null
cat >kd.yaml <<END
recipe: kd
model_name_or_path: model
teacher_model_name_or_path: teacher
dataset_name: data.jsonl
validation_split: 0.1
eval_strategy: epoch
kd_ratio: 0.7
use_peft: true
output_dir: run
END
ebb kd kd.yaml save_teacher=saved threads=1 2>&1 | grep without
ebb kd kd.yaml teacher_logits=saved threads=1 max_steps=2 2>&1 | steady | grep -E 'without|^teacher|^loss|^step'
sed -n 2,4p run/run.json
ebb plan kd.yaml threads=1 2>/dev/null | grep -E '^teacher'
