. "$SOURCE/tests/cli/kit.sh"
make_sailor
printf 'ahoy\nland\n' | chat max_length=45
