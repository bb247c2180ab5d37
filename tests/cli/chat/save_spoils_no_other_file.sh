# SPDX-License-Identifier: Apache-2.0
. "$SOURCE/tests/cli/kit.sh"
make_sailor
echo 'dear diary' >diary.txt
echo '/save talk.jsonl' | chat
printf 'ahoy\n/save talk.jsonl\n/save talk.jsonl\nland\n/save talk.jsonl\n' | chat
cat talk.jsonl
printf 'ahoy\n/save diary.txt\n' | chat
code=$?
cat diary.txt
exit $code
