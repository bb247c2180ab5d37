. "$SOURCE/tests/cli/kit.sh"
make_model
mkfifo lines
ebb chat model=model <lines 2>said.txt &
exec 3>lines # held open: the program waits for a line
echo /help >&3
for i in $(seq 150); do
    grep -q /exit said.txt && break
    sleep 0.2
done
kill -TERM $!
wait $!
echo $?
tail -1 said.txt
