. "$SOURCE/tests/cli/kit.sh"
make_model
echo /sav | ebb chat model=model
