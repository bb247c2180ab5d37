. "$SOURCE/tests/cli/kit.sh"
make_data data.jsonl 4
make_data more.jsonl 5
make_model
ebb kd model=model teacher=model dataset=data.jsonl save_teacher=saved teacher_top_k=4 threads=1 >/dev/null 2>&1
go() { error_of ebb kd model=model teacher_logits=saved output_dir=run threads=1 max_steps=1 "$@"; }
go dataset=more.jsonl
go dataset=data.jsonl completion_only_loss=false
go dataset=data.jsonl packing=true packing_strategy=wrapped max_length=32
go dataset=data.jsonl temperature=2
go dataset=data.jsonl teacher=model
error_of ebb kd model=model teacher=model dataset=data.jsonl save_teacher=saved threads=1
error_of ebb plan recipe=kd model=model teacher_logits=saved max_length=64 threads=1
rm saved/teacher.json
go dataset=data.jsonl
ls run 2>&1
