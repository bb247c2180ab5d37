. "$SOURCE/tests/cli/kit.sh"
make_model; make_pairs pairs.jsonl 2
error_of prefer ref_model=reference
code=$?
[ -e run ] && echo "run was made"
exit $code
