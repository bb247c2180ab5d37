. "$SOURCE/tests/cli/kit.sh"
make_model; make_pairs pairs.jsonl 2
sed 's/"intermediate_size": [0-9]*/"intermediate_size": 16384/' model/config.json >large.json
ebb init large.json large --tokenizer bytes >/dev/null 2>&1
error_of ebb dpo model=model ref_model=large dataset=pairs.jsonl output_dir=run threads=1 use_peft=true \
    precompute_ref_log_probs=true memory_budget=20MiB
