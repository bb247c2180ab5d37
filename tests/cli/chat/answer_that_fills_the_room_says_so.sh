. "$SOURCE/tests/cli/kit.sh"
make_sailor
echo land | chat max_length=26
