# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
ebb init tiny-llama bytes --tokenizer bytes >/dev/null
ebb init tiny-llama model tokenizer=bytes/
ebb configs cat tiny-llama >shape.json
sed 's/"vocab_size": 264/"vocab_size": 200/' shape.json >small.json
ebb init small.json other tokenizer=bytes/ # its author may have weights to match
code=$?
ls
exit $code
