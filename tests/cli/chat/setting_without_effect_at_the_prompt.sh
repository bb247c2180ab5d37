. "$SOURCE/tests/cli/kit.sh"
make_model
echo /set top_p 0.5 | ebb chat model=model
