. "$SOURCE/tests/cli/kit.sh"
make_data data.jsonl 2
make_model
error_of ebb kd model=model teacher=model dataset=data.jsonl save_teacher=model threads=1
error_of ebb kd model=model dataset=data.jsonl save_teacher=saved threads=1
error_of ebb kd model=model teacher_logits=nowhere dataset=data.jsonl output_dir=run threads=1
