. "$SOURCE/tests/cli/kit.sh"
make_model
train
