. "$SOURCE/tests/cli/kit.sh"
make_model
echo /help | ebb chat model=model
