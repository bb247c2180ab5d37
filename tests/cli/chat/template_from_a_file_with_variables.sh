. "$SOURCE/tests/cli/kit.sh"
make_sailor
cat >other.jinja <<'END'
{%- if shout is true -%}{{ raise_exception('shout is on, and depth is ' ~ depth) }}{%- endif -%}
{{- bos_token + 'user\nahoy' + eos_token + '\n' + bos_token + 'assistant\n' -}}
END
echo land | chat chat_template=other.jinja
echo land | chat chat_template=other.jinja chat_template_kwargs='{shout: true, depth: 3}'
