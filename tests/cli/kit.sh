# What cases that train share; a case reads it with `. "$SOURCE/tests/cli/kit.sh"`. One thread, so that
# numbers are the same on every machine.
# SPDX-License-Identifier: Apache-2.0
OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
export OMP_NUM_THREADS OMP_WAIT_POLICY

# make_model [DIR]: a tiny model with the byte tokenizer.
make_model() {
    ebb init tiny-llama "${1:-model}" --tokenizer bytes >/dev/null
}

# make_data FILE COUNT: so many short records with prompts.
make_data() {
    i=0
    while [ $i -lt "$2" ]; do
        i=$((i + 1))
        echo "{\"prompt\": \"what is $i?\", \"completion\": \" it is $i\"}"
    done >"$1"
}

# make_pairs FILE COUNT: so many preference pairs.
make_pairs() {
    i=0
    while [ $i -lt "$2" ]; do
        i=$((i + 1))
        echo "{\"prompt\": \"what is $i?\", \"chosen\": \" it is $i\", \"rejected\": \" who knows what\"}"
    done >"$1"
}

# make_verdicts FILE COUNT: so many answers, good and bad ones in turn.
make_verdicts() {
    i=0
    while [ $i -lt "$2" ]; do
        i=$((i + 1))
        echo "{\"prompt\": \"what is $i?\", \"completion\": \" it is $i\", \"label\": true}"
        i=$((i + 1))
        echo "{\"prompt\": \"what is $i?\", \"completion\": \" who knows\", \"label\": false}"
    done >"$1"
}

# unless KEY=VALUE WORD ...: KEY=VALUE, unless one of the words is for the same key.
unless() {
    own=$1
    shift
    for word in "$@"; do
        case $word in "${own%%=*}="*) return ;; esac
    done
    echo "$own"
}

# prefer KEY=VALUE ...: a short run of `ebb dpo` on model and pairs.jsonl into run.
prefer() {
    # shellcheck disable=SC2046
    ebb dpo model=model dataset=pairs.jsonl $(unless output_dir=run "$@") threads=1 "$@"
}

# train KEY=VALUE ...: a short run of `ebb sft` on model and data.jsonl into run.
train() {
    # shellcheck disable=SC2046
    ebb sft model=model $(unless dataset=data.jsonl "$@") $(unless output_dir=run "$@") threads=1 "$@"
}

# error_of COMMAND ...: runs it and lets only its error through, not what it says on the way.
error_of() {
    "$@" 2>said.txt
    code=$?
    sed -n '/^ebb: /,$p' said.txt >&2
    return $code
}

# write_number N: eight bytes, the lowest first, as a safetensors file begins.
write_number() {
    n=$1 count=8
    while [ $count -gt 0 ]; do
        # shellcheck disable=SC2059
        printf "\\$(printf %03o $((n % 256)))"
        n=$((n / 256)) count=$((count - 1))
    done
}

# write_tensors FILE HEADER BYTES: a safetensors file of this header and so many zero bytes.
write_tensors() {
    {
        write_number ${#2}
        printf %s "$2"
        head -c "$3" /dev/zero
    } >"$1"
}

# nothing_left DIR: names what a failed save left in it, temporary files included.
nothing_left() {
    find "$1" -name '*.tmp' -o -name '.checkpoint*' -o -name '.result*'
}

# sizes: sizes as SIZE, since they change with the plan.
sizes() {
    sed 's/[0-9][0-9.]* *[KMGT]*i*B\([^A-Za-z]\|$\)/SIZE\1/g'
}

# steady: what a run says, without times, speeds, and what depends on the machine's arithmetic. A time is
# whatever src/base/text.c writes: 12ms, 0.5s, 1m 27s, 2h 05m, 3d 04h, unknown.
steady() {
    span='\(unknown\|[0-9][0-9.]*m*s\|[0-9]*[dhm] [0-9]*[hms]\)'
    sed -e "s/ in $span;/ in TIME;/" -e "s/ in $span\$/ in TIME/" -e 's/^time .*/time TIME/' \
        -e "s/  [0-9]* tok\/s  ETA $span/  SPEED/" -e 's/[0-9.]* [KM]iB/SIZE/g' \
        -e 's/loss [0-9.]*/loss N/g' -e 's/grad norm [0-9.]*/grad norm N/' -e 's/accuracy [0-9.]*/accuracy N/' \
        -e 's/perplexity [0-9.]*/perplexity N/'
}

# make_sailor: a model in sailor that answers "ahoy" with "aye" and "land" with "where", in a first
# turn and in a second. The records are what the byte tokenizer's chat template writes.
make_sailor() {
    make_model
    user='<|begin|>user\n' next='<|endoftext|>\n<|begin|>assistant\n'
    for asked in ahoy:aye land:where; do
        said=${asked#*:} asked=${asked%:*}
        printf '%s\n' "{\"prompt\": \"$user$asked$next\", \"completion\": \"$said\"}"
        for first in ahoy:aye land:where; do
            before="$user${first%:*}$next${first#*:}<|endoftext|>\n"
            printf '%s\n' "{\"prompt\": \"$before$user$asked$next\", \"completion\": \"$said\"}"
        done
    done >sailor.jsonl
    train dataset=sailor.jsonl output_dir=sailor per_device_train_batch_size=6 num_train_epochs=80 \
        learning_rate=3e-3 save_strategy=no >/dev/null 2>&1
}

# chat KEY=VALUE ...: `ebb chat` with the sailor on standard input.
chat() {
    ebb chat model=sailor threads=1 "$@"
}

# measured: what `ebb bench` says, without what is measured; blanks before numbers are one.
measured() {
    sizes | sed -e 's/; about [0-9hms. ]* left//' -e 's/ [0-9][0-9]* tokens\/s/ N tokens\/s/' \
        -e 's/ *SIZE/ SIZE/g' -e 's/ \{2,\}[0-9.]* m*s  *[0-9]*  *[0-9.]*$/ TIME N LOSS/' \
        -e 's/ \{2,\}[0-9.]* m*s /  TIME /g' -e 's/  *TIME/ TIME/g'
}
