. "$SOURCE/tests/cli/kit.sh"
make_sailor
printf 'ahoy\nland\n/undo\nahoy\n' | chat verbose=true max_length=200 2>&1 | sed 's/[0-9.]* s;/SECONDS;/; s/[0-9.]* tokens\/s/SPEED/'
