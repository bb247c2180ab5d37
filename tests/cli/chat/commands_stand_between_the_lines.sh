. "$SOURCE/tests/cli/kit.sh"
make_sailor
chat <<'END'
ahoy
/save talk.jsonl
/undo
/undo
land
/reset
/system You are a parrot.
land
/set temperature 0.5
/set stop ["her", "x"]
/set
/clear
/system
land
/save talk.jsonl
/exit
this is not read
END
cat talk.jsonl
