for command in sft plan bench probe plot eval generate merge init tokenize configs help version; do
    ebb help $command >text.txt || echo "$command failed"
    head -n 1 text.txt
done
