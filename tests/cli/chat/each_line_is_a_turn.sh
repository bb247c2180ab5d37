. "$SOURCE/tests/cli/kit.sh"
make_sailor
printf 'ahoy\nland\n\nahoy' | chat # an empty line is none, and the last needs no end
