for pair in qwen2.5-7b:0.5b:qwen2.5-0.5b llama-3.1-8b:3.2-1b:llama-3.2-1b; do
    teacher=${pair%%:*} rest=${pair#*:}
    student=${rest#*:}
    mkdir "$teacher" "$student"
    ebb configs cat "$teacher" >"$teacher/config.json"
    ebb configs cat "$student" >"$student/config.json"
    ebb plan "$SOURCE/configs/kd-$teacher-to-${rest%:*}.yaml" model_name_or_path="$student" \
        teacher_model_name_or_path="$teacher" device=cpu threads=2 2>/dev/null || echo "exit code $?"
    echo
done
