# A slow machine's times must be no other output than a fast one's.
. "$SOURCE/tests/cli/kit.sh"
for span in 12ms 0.21ms 0.5s 9.9s 42s "1m 27s" "59m 00s" "2h 05m" "3d 04h" unknown; do
    echo "step 1/2  loss 1.5000  grad norm 0.5  lr 0.001  812 tok/s  ETA $span  memory 1.5 MiB of 2.0 MiB"
    echo "  eval_loss 1.2000  perplexity 3.3  in $span"
    echo "2 optimizer steps, 96 tokens in $span; loss 1.4000"
done | steady | sort | uniq -c | sed 's/^ *//'
