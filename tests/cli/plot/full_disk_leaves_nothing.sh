# A file may have 4 KiB here: the picture is larger, and nothing of it is left.
echo '{"step": 1, "loss": 2}' >run.jsonl
ulimit -f 4
ebb plot run.jsonl 2>&1 | sed 's/[0-9]* more bytes.*which/bytes, which/'
ebb plot run.jsonl --output run.svg >/dev/null 2>&1 || echo "svg failed too"
ls
