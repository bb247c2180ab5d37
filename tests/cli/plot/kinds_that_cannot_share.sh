echo '{"step": 1, "loss": 2}' >run.jsonl
ebb plot "$SOURCE/tests/fuzz/corpus/results/plans.json" run.jsonl 2>&1 | sed "s|'/.*/plans|'plans|"
ls
