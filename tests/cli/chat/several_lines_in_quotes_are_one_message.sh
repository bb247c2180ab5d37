. "$SOURCE/tests/cli/kit.sh"
make_sailor
chat max_new_tokens=1 <<'END' >/dev/null 2>&1
"""two
lines"""
"""one"""
"""

/help

"""
""""""
//slash
/save talk.jsonl
END
sed 's/"assistant", "content": "[^"]*"/"assistant", "content": "..."/g' talk.jsonl
