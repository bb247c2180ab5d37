# tests/docs/run.sh is content with a page that is right, and finds what a page says and is not so.
run() {
    sh "$SOURCE/tests/docs/run.sh" "$(command -v ebb)" "$PWD" "$1" 2>&1 | sed "s|$PWD/||"
}
cat >right.md <<'END'
# A page
<!-- run
echo kept >file.txt
-->

```console run
$ cat file.txt; \
  echo 'a line of 3 words'
...
a line ...
```

```console run numbers exit 2
$ ebb sfft; echo "it took 1m 03s for 8,192 bytes" && exit 2
...
it took 2.5 s for 17 bytes
```

```yaml file conf.yaml
lora_r: 8
```

```sh run
grep -q lora_r conf.yaml
```

```yaml keys max_length=64 use_peft=true
lora_r: 8
```

```sh no-run a reason
false
```
END
run right.md
cat >wrong.md <<'END'
# A page
```console run
$ echo one
two
$ echo one; echo two
one
$ echo one
...
three
$ false
```

```sh run
false
```

```yaml keys max_length=64 use_peft=true
lora_rnk: 8
```

```python
print(1)
```

```sh runs
true
```

A command:

    ebb plan x
END
run wrong.md | sed 's/\/tmp[^ ]*keys/keys/'
