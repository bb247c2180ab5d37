# The second line goes in after the first answer has come out.
mkfifo in out
ebb tokenize "$SOURCE/tests/golden/tokenizer_small" <in >out &
exec 3>in 4<out
echo "the tide" >&3
read -r first <&4
echo "$first" >&3
read -r second <&4
exec 3>&-
wait
echo "$first"
echo "$second"
