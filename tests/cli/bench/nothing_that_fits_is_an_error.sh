. "$SOURCE/tests/cli/kit.sh"
make_model
ebb bench model=model threads=1 memory_budget=1MiB --sweep length=64 --modes none --output out 2>said.txt
echo $?
sizes <said.txt
