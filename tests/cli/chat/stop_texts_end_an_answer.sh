. "$SOURCE/tests/cli/kit.sh"
make_sailor
echo land | chat stop=re
echo land | chat stop='["nothing", "h", "e"]'
prompt='<|begin|>user
land<|endoftext|>
<|begin|>assistant
'
ebb generate model=sailor threads=1 prompt="$prompt" 2>/dev/null
ebb generate model=sailor threads=1 prompt="$prompt" stop='["where!", "e"]' 2>/dev/null
