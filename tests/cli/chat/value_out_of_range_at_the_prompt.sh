. "$SOURCE/tests/cli/kit.sh"
make_model
echo /set top_p 4 | ebb chat model=model
