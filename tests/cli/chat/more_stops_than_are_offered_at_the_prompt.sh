. "$SOURCE/tests/cli/kit.sh"
make_model
stops=$(i=0; while [ $i -lt 65 ]; do printf '"%s", ' $((i += 1)); done)
echo "/set stop [${stops%, }]" | ebb chat model=model
