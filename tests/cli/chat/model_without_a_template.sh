. "$SOURCE/tests/cli/kit.sh"
make_model
rm model/chat_template.jinja
ebb chat model=model
