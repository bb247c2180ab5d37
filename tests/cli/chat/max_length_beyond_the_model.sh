. "$SOURCE/tests/cli/kit.sh"
make_model
ebb chat model=model max_length=100000
