. "$SOURCE/tests/cli/kit.sh"
make_model
echo /set threads 4 | ebb chat model=model
