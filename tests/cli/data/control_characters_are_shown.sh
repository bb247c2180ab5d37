. "$SOURCE/tests/cli/kit.sh"
make_model
name=$(printf 'a\033]0;title\007\rb')
make_data "d$name.jsonl" 1
ebb data model=model dataset="d$name.jsonl" 2>&1 >/dev/null | grep -a title
train dataset="$name"
