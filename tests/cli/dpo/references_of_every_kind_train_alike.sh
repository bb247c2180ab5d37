. "$SOURCE/tests/cli/kit.sh"
make_model; make_pairs pairs.jsonl 6
cp -r model other
go() {
    out=$1
    shift
    prefer output_dir=$out max_steps=4 learning_rate=1e-3 validation_split=0.34 eval_strategy=steps eval_steps=2 "$@" 2>&1 |
        grep -E '^(loss:|reference)'
}
# Every weight: the second model may be named, may be the default, or may be gone when training starts.
go default
go named ref_model=other
go before precompute_ref_log_probs=true
cmp default/model.safetensors named/model.safetensors && echo "a name changed nothing"
cmp default/model.safetensors before/model.safetensors && echo "computing it beforehand changed nothing"
# Adapters: the model without its own, but for rounding.
go adapter use_peft=true
go adapter-before use_peft=true precompute_ref_log_probs=true
last() {
    tail -n 1 "$1/metrics.jsonl" | grep -oE '"eval_loss": [^,]*' | sed 's/.* //'
}
echo "$(last adapter) $(last adapter-before)" | awk '{ d = $1 - $2; print (d < 1e-5 && d > -1e-5) ? "nearly equal" : $0 }'
