. "$SOURCE/tests/cli/kit.sh"
make_model
printf 'bad \377 byte\n' | ebb chat model=model
