. "$SOURCE/tests/cli/kit.sh"
make_model
ebb bench model=model threads=1 steps=1 --sweep length=16 2>&1 >/dev/null | measured
error_of ebb bench model=model threads=1 --sweep length=16 --modes offload
