#!/usr/bin/env python3
"""Writes the golden files of the chat template tests with Hugging Face's transformers.

    golden_templates.py jinja                    tests/golden/jinja.json
    golden_templates.py chat                     tests/golden/chat_templates.json
    golden_templates.py real NAME MODEL_DIR DATA_DIR   tests/golden/templates_NAME.json

`jinja` renders the templates below, some of them of one expression, in the environment that transformers makes for
chat templates. `chat` renders conversations with templates in the style of known families, through
apply_chat_template. `real` does so with a model's own template and the records of glaive_toolcall_en_demo.json and
dpo_en_demo.json; its golden file holds hashes only.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template, _render_with_assistant_indices

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")

VARIABLES = {
    "name": "World", "empty": "", "none_value": None, "yes": True, "no": False, "n": 7, "minus": -7, "f": 2.5,
    "words": ["pear", "Apple", "fig", "apple"], "numbers": [3, 1, 2], "mixed": [1, "a", None, True, 1.5, [1], {"k": "v"}],
    "text": "  The quick brown fox\n jumps over\tthe lazy dog  ", "uni": "naïve Straße ŉ ΑΣ ΟΔΟΣ ﬁn 日本語 😀 é",
    "quote": "it's \"so\" \\ \n\t\r\x00\x7f\u200b\u00ad end", "html": "<a href='x'>&\"</a>",
    "user": {"name": "Ann", "age": 30, "tags": ["x", "y"], "address": {"city": "Bern"}, "items": "mine", "get": 1},
    "people": [{"name": "Bob", "age": 25, "on": True, "address": {"city": "Rome"}},
               {"name": "ann", "age": 31, "on": False, "address": {"city": "Bern"}},
               {"name": "Cid", "age": 25, "on": True, "address": {"city": "Oslo"}}],
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <there>"},
                 {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"}],
    "pairs": [[1, "a"], [2, "b"]], "nested": [[1, [2, 3]], [4, [5, 6]]], "d": {"b": 1, "a": 2, "C": 3},
    "floats": [0.1, 1e16, 1e15, 123456789.123, 1e-5, 0.0001, 1e100, -0.0, 5e-324, 100.0, 1.0, 2.675, 1e22, 1.5e300],
    "tool": {"type": "function", "function": {"name": "f", "description": "é \"q\" <b>", "parameters": {
        "type": "object", "properties": {"x": {"type": "number"}, "e": {}, "l": []}, "required": ["x"]}}},
    "long": "word " * 80, "csv": "a,b,,c,", "lines": "one\ntwo\r\nthree\n\nfive\n", "mapping_keys": {"1": 1, "x y": 2},
    "bos_token": "<s>", "eos_token": "</s>",
}

EXPRESSIONS = """
1 + 2 * 3
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
7.5 % -2
2 ** 10
2 ** 3 ** 2
-2 ** 2
2 ** -1
2 ** 0.5
4 / 2
1 / 3
10 / 4 * 2
1e3
1_000 + 0x1F + 0b101 + 0o17
1.5e-3
(1, 2, 3)
(1,)
()
[]
{}
[1, 2.0, 'x', none, true, false]
{'a': 1, 2: 'b', none: none, true: 3}
{'a': {'b': [1, {'c': ()}]}}
'a' 'b' "c"
'it\\'s' ~ "q\\"q"
'\\n\\t\\\\ \\x41 \\u00e9 \\U0001F600 \\101 \\q'
"tab\\there"
'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] ~ missing
'a' + 'b'
[1] + [2]
(1,) + (2, 3)
'ab' * 3
3 * 'ab'
[0] * 3
'ab' * -1
true + true
true + 1.5
true and 'x'
'' or 'y'
none or false
not none
not 1 == 2
1 < 2 < 3
1 < 2 > 3
1 == 1.0
true == 1
'a' < 'b'
'Z' < 'a'
[1, 2] < [1, 3]
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
none == false
missing == other_missing
missing != 1
1 in [1, 2]
'a' in 'cat'
'x' not in 'cat'
'name' in user
'nope' in user
1 in (2, 3)
'' in ''
none in [none]
missing in [1]
1 in missing
'x' if yes else 'y'
'x' if no
('x' if no) is defined
'x' if no else 'y' if no else 'z'
name
missing
user
user.name
user['name']
user.address.city
user.items is callable
user['items']
user.get is callable
user['get']
user.get('age', 5) if false else 1
d.get('a')
d.get('zz')
d.get('zz', 9)
d.items()
d.keys()
d.values()
d.items()|list
d.keys()|list
d['a']
d.a
user.nope
user.nope is defined
none_value.x is defined
words[0]
words[-1]
words[9] is defined
words.0
words[1:]
words[:-1]
words[::-1]
words[::2]
words[3:0:-1]
words[10:]
words[-2:]
words[none:2]
'hello'[1]
'hello'[-1]
'hello'[1:3]
'hello'[::-1]
uni[0:7]
uni[::-1]
uni[::3]
uni[-3:]
uni[5]
numbers[true]
range(3)
range(3)|list
range(2, 8, 3)|list
range(5, 0, -2)|list
range(0)|list
range(10)[2:5]
range(10)[-1]
range(3) == range(0, 3)
dict(a=1, b=2)
dict([('x', 1), ('y', 2)])
dict({'a': 1}, b=2)
namespace(a=1).a
namespace(a=1)
namespace({'q': 2}).q
name|upper
name|lower
'hello world-foo (bar) [baz]'|title
"they're bill's".title()
'hELLO wORLD'|capitalize
uni|upper
uni|lower
uni|title
uni.title()
uni|capitalize
uni.swapcase()
uni|length
'ΟΔΟΣ ΑΣ. Σ ΑΣΑ'|lower
text|trim
text.strip()
text.lstrip()
text.rstrip()
'xxhixx'.strip('x')
'xxhixx'|trim('x')
'abcba'.strip('ab')
'éaé'.strip('é')
'xxhi'.lstrip('xy')
'\\u00a0\\u2003hi\\u3000'|trim|length
text.split()
text.split(none, 2)
text.rsplit(none, 1)
' a b '.rsplit(none, 1)
' a b '.split(none, 0)
'   '.split()
'   '.split(none, 1)
csv.split(',')
csv.split(',', 2)
csv.rsplit(',', 2)
csv.split(sep=',', maxsplit=1)
''.split(',')
''.split()
'a</think>b</think>c'.split('</think>')[-1]
'a</think>b</think>c'.rsplit('</think>', 1)
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('-')
'abc'.rpartition('-')
lines.splitlines()
lines.splitlines(true)
'a\\rb\\x0bc\\x1cd\\u2028e'.splitlines()
''.splitlines()
'hello'.startswith('he')
'hello'.startswith(('x', 'h'))
'hello'.endswith('lo')
'hello'.endswith(('x', 'y'))
'hello'.startswith('l', 2)
'hello'.startswith('', 9)
'hello'.find('l')
'hello'.rfind('l')
'hello'.find('z')
uni.find('é')
'hello'.find('', 9)
'hello'.index('l', 3)
'hello'.count('l')
'hello'.count('')
'aaaa'.count('aa')
'hello'.replace('l', 'L')
'hello'.replace('l', 'L', 1)
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
'héé'.replace('', '.')
'hello'|replace('l', 1)
'aaa'|replace('a', 'b', 2)
123|replace(2, 'x')
'-'.join(['a', 'b'])
', '.join(words)
'x'.center(7, '*')
'xy'.center(7)
'x'|center(6)
'x'.ljust(3) ~ '|'
'x'.rjust(3, '0')
'-42'.zfill(6)
'a\\tb'.expandtabs(4)
'abc'.isalpha()
'ab1'.isalnum()
'12'.isdigit()
'²'.isdigit()
'½'.isnumeric()
'½'.isdigit()
'12'.isdecimal()
'ABC'.isupper()
'aBC'.islower()
'Title Case'.istitle()
' \\t'.isspace()
''.isspace()
'abc'.isidentifier()
'é'.isascii()
'abc\\n'.isprintable()
'TestHook'.removeprefix('Test')
'TestHook'.removesuffix('Hook')
'{} and {}'.format(1, 'x')
'{1}{0}'.format('a', 'b')
'{a}-{b}'.format(a=1, b=none)
'{{}} {!r}'.format('q')
'%s and %d' % ('x', 42)
'%5.1f|%-5s|%05d|%x' % (3.14159, 'ab', 42, 255)
'%(a)s!' % {'a': 1}
'%s' % 'solo'
'%s' % [1, 2]
'%%' % ()
'%r' % 'q'
'%.2s' % 'abc'
'%+d % d' % (5, 6)
'%c' % 65
'%e %g' % (12345.678, 0.00001)
'%s, %s!'|format('a', 'b')
'%(x)s'|format(x=3)
words|length
words|count
user|length
missing|length
words|first
words|last
'abc'|first
'abc'|last
[]|first is defined
d|first
d|last
words|join
words|join(', ')
words|join(1)
people|join(', ', attribute='name')
words|sort
words|sort(reverse=true)
words|sort(case_sensitive=true)
people|sort(attribute='age')|map(attribute='name')|list
people|sort(attribute='age,name')|map(attribute='name')|list
people|sort(attribute='name', reverse=true)|map(attribute='name')|list
numbers|sort
numbers|max
numbers|min
words|min
words|max
people|max(attribute='age')
[]|max is defined
numbers|sum
people|sum(attribute='age')
people|sum('age', 100)
[[1], [2]]|sum(start=[])
words|unique|list
words|unique(true)|list
people|unique(attribute='age')|map(attribute='name')|list
words|map('upper')|list
words|map('replace', 'p', 'q')|list
people|map(attribute='address.city')|join('/')
people|map(attribute='zz', default='-')|list
nested|map(attribute='1.0')|list
nested|map('first')|list
numbers|select('odd')|list
numbers|reject('odd')|list
numbers|select('gt', 1)|list
numbers|select('>=', 2)|list
mixed|select|list
mixed|reject|list
mixed|select('string')|list
people|selectattr('on')|map(attribute='name')|list
people|rejectattr('on')|map(attribute='name')|list
people|selectattr('age', 'equalto', 25)|map(attribute='name')|list
people|selectattr('address.city', 'eq', 'Bern')|list|length
messages|selectattr('role', 'ne', 'user')|map(attribute='content')|list
messages|selectattr('role', 'in', ['user', 'system'])|list|length
missing|map('upper')|list
words|reverse|list
'abc'|reverse
d|reverse|list
words|list
'abc'|list
user|list
missing|list
d|items|list
missing|items|list
d|dictsort
d|dictsort(true)
d|dictsort(false, 'value')
d|dictsort(reverse=true)
words|batch(3)|list
words|batch(3, 'x')|list
words|slice(3)|list
words|slice(3, 'x')|list
missing|default('x')
missing|d('x')
missing|default
none_value|default('x')
empty|default('x')
empty|default('x', true)
none_value|default('x', boolean=true)
'42'|int
'42.9'|int
'x'|int
'x'|int(5)
'0x1f'|int(0, 16)
'1f'|int(base=16)
'0b11'|int(base=0)
' 12 '|int
'1_000'|int
3.99|int
-3.99|int
none|int
'1e3'|int
true|int
'3.5'|float
'x'|float
'x'|float(1.5)
3|float
'inf'|float
'nan'|float
'1e400'|float if false else 0
-3|abs
3.5|abs
-1|abs + 2
42.55|round
42.55|round(1)
42.55|round(1, 'floor')
42.51|round(0, 'ceil')
2.5|round
3.5|round
2.675|round(2)
1234.5|round(-2)
7|round
15|round(-1)
25|round(-1)
7|round(1, 'floor')
floats
floats|join(' ')
1e16
123456789012345680.0
0.1 + 0.2
100.0
1e-7
5|string
none|string
'foo\\nbar\\n\\nbaz'|indent
'foo\\nbar\\n\\nbaz\\n'|indent(2)
'foo\\nbar\\n\\nbaz'|indent(2, true)
'foo\\nbar\\n\\nbaz'|indent(2, true, true)
'foo\\nbar'|indent('>>')
'a\\r\\n'|indent(2)
'a\\r'|indent(2)
''|indent(2, true)
'the quick brown'|wordcount
uni|wordcount
long|truncate(20)
long|truncate(20, true)
long|truncate(20, false, '…', 0)
'short'|truncate(3)
html|e
html|escape
html|safe
html|safe + '<'
'<' + (html|safe)
html|e ~ '<'
(html|e)|length
html|forceescape
'<b>'|e|upper
'a'|upper|lower|title
user|attr('name') is defined
d|attr('keys') is defined
quote
[quote]
['a\\'b', "a\\"b", 'a\\'b"c']
[uni]
['\\x00\\x1f\\x7f\\x85\\xa0\\u2028\\ue000']
tool|tojson
tool|tojson(indent=2)
tool|tojson(indent=0)
tool|tojson(indent='\\t')
tool|tojson(separators=(',', ':'))
tool|tojson(indent=4, separators=(', ', ' = '))
tool|tojson(ensure_ascii=true)
tool|tojson(sort_keys=true)
tool|tojson(true)
quote|tojson
uni|tojson
uni|tojson(ensure_ascii=true)
'\\x7f'|tojson(ensure_ascii=true)
floats|tojson
mixed|tojson
[]|tojson(indent=2)
{}|tojson(indent=2)
[[], {}]|tojson(indent=2)
{1: 'a', none: 2, true: 3, 1.5: 4}|tojson
(1, (2, 3))|tojson
html|tojson
none|tojson
'inf'|float|tojson
-0.0
name is defined
missing is defined
missing is undefined
missing is not defined
none is none
none_value is none
missing is none
name is string
n is string
n is number
f is number
yes is number
n is integer
yes is integer
f is float
yes is boolean
n is boolean
yes is true
n is true
no is false
user is mapping
words is mapping
words is iterable
name is iterable
n is iterable
missing is iterable
words is sequence
user is sequence
name is sequence
d.keys() is sequence
n is sequence
range is callable
name is callable
missing is callable
n is odd
n is even
n is divisibleby 7
n is divisibleby(2)
'abc' is lower
'ABC' is upper
n is eq 7
n is equalto(7)
n is ne 8
n is gt 3
n is ge 7
n is lt 3
n is le 7
n is lessthan 9
n is greaterthan 9
n is sameas 7
none is sameas none
true is sameas true
'a' is in 'abc'
n is in [1, 7]
'upper' is filter
'nope' is filter
'odd' is test
html|e is escaped
name is escaped
1 is not string and 2 is number
n is defined and n > 5
user.name is defined and user.name == 'Ann'
(n > 5) is true
messages|length - 1
(messages|length) - 1
messages[0].role == 'system'
messages[0]['role']
messages[-1].content
messages[1:]|map(attribute='role')|list
messages|map(attribute='content')|map('length')|list
messages[0].content + '\\n'
not messages
mapping_keys['x y']
mapping_keys.1 is defined
mapping_keys['1']
[1, 2, 3][1:][0]
[[1, 2], [3]][0][1]
{'a': [1]}['a'][0]
{'a': 1}.a
'a b'.split(' ')[1].upper()
(1, 2)[0]
[1,2,] ~ (3,)
'%s' % missing
missing|upper
missing|trim
missing|join
missing|string
missing|sort
[missing]
{'a': missing}
none
true
1.0
1,2
[words, d]|first|last
words.index('fig')
words.count('fig')
(1, 1, 2).count(1)
2.0.is_integer()
d.copy()
cycler('a', 'b').next()
[3, 1]|sort|first
-n
+n
--n
-f
not not n
not no and yes
no or yes and no
1 if n else 2
n|string|length
[1, 2]|tojson ~ '!'
words|map('length')|sum
'é' < 'z'
'a' == 'a' == 'a'
1 != 2 != 1
'abc'|length > 2 and 'abc'[0] == 'a'
{'a': 1, 'a': 2}
{1: 'x', 1.0: 'y', true: 'z'}
[1, [2, [3]]]|tojson(indent=1)
9223372036854775807
-9223372036854775807
9007199254740993 * 1.0
'x' * 0 == ''
d|length == 3
d|list|sort
'\\u00e9' == 'é'
"a{# not a comment #}b"
'}}' ~ "%}"
"""

# Whole templates, where blanks and newlines count.
TEMPLATES = [
    "", "plain", "plain\n", "plain\n\n", "a\r\nb\rc\n", "{{ name }}", "{{name}}\n", "{{ name }}\n\n", "a {{- name -}} b",
    "a {{+ name }} b", "{{-1}}", "{#c#}x", "a {# c #} b", "a {#- c -#} b", "a\n  {# c #}\nb", "a\n  {#+ c +#}\nb", "{# {{ x }} #}y",
    "  {% if yes %}\n  x\n  {% endif %}\n  y", "  {%- if yes -%}\n  x\n  {%- endif -%}\n  y",
    "  {%+ if yes +%}\n  x\n  {%+ endif +%}\n  y", "a  {% if yes %}b{% endif %}  c", "a\n\n  {% if yes %}\n\nb{% endif %}\n\nc\n",
    "{% if yes %}\nx\n{% endif %}\n{% if yes %}\ny\n{% endif %}\n", "x\t {% set a = 1 %}\n\ty{{ a }}",
    "{% raw %}{{ name }}{% endraw %}", "{% raw %}\n  {{ x }} {% if %}\n{% endraw %}\nz", "a {%- raw -%}  x  {%- endraw -%} b",
    "  {% raw %} x {% endraw %}\n y", "{%+ raw %}x{% endraw +%}\ny", "{{ '{{' }}", "{{ \"a\nb\" }}", "{{\n  name\n}}",
    "\u3000{%- if yes -%}\u3000x\u00a0{%- endif %}", "{{ name }}{{ n }}{{ f }}",
    # if
    "{% if no %}a{% elif yes %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}", "{% if no %}a{% endif %}",
    "{% if yes: %}a{% else: %}b{% endif %}", "{% if missing %}a{% else %}b{% endif %}", "{% if words|select('eq', 'zz') %}always{% endif %}",
    "{% if yes and (no or n) and not empty %}a{% endif %}", "{% if 1, %}t{% endif %}",
    # set
    "{% set x = 1 %}{{ x }}", "{% set x = 1, 2 %}{{ x }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, (b, c)) = (1, (2, 3)) %}{{ a + b + c }}",
    "{% set x %}a{{ n }}b{% endset %}[{{ x }}]", "{% set x | upper | trim %} a{{ name }} {% endset %}[{{ x }}]",
    "{% set ns = namespace(a=1, b=[]) %}{% set ns.a = 2 %}{% set ns.c = 'x' %}{{ ns.a }}{{ ns.c }}{{ ns.b }}",
    "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}", "{% set ns = namespace(x=1) %}{% set ns.x %}t{% endset %}{{ ns.x }}",
    "{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
    "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}", "{% if no %}{% set name = 2 %}{% endif %}{{ name }}",
    "{% set name = name ~ '!' %}{{ name }}", "{% set x = 0 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "{% for i in [1, 2] %}{{ name }}{% set name = i %}{{ name }}{% endfor %}{{ name }}",
    "{% for i in [1, 2] %}{% if i == 2 %}{{ y }}{% else %}{% set y = 5 %}{% endif %}{% endfor %}|{{ y }}",
    "{% set ns = namespace(items=3) %}{{ ns.items }}{{ ns['items'] }}", "{% set d2 = {'a': 1} %}{{ d2.a }}",
    # for
    "{% for x in words %}{{ x }},{% endfor %}", "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in words %}a{% else %}none{% endfor %}",
    "{% for x in missing %}a{% else %}none{% endfor %}", "{% for c in 'héy' %}{{ c }}.{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for a, b in pairs %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, (b, c) in nested %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in words if x != 'fig' %}{{ loop.index }}{{ x }}{{ loop.last }}{% endfor %}",
    "{% for x in words if x == 'zz' %}a{% else %}none{% endfor %}", "{% for x in words if loop is defined %}{{ x }}{% endfor %}",
    "{% for x in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for x in words %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in words %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for x in numbers %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in numbers %}{{ loop }}{% endfor %}", "{% for x in words|map('upper') %}{{ loop.last }}{{ x }}{{ loop.length }} {% endfor %}",
    "{% for x in words|select('ne', 'fig') if x != 'pear' %}{{ loop.revindex }}{{ x }}{{ loop.last }} {% endfor %}",
    "{% for x in [1, 2] %}{% for y in [3, 4] %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in range(3) %}{% if x == 0 %}{% break %}{% endif %}{% else %}else{% endfor %}", "{% for x in range(3) %}{% continue %}{% else %}else{% endfor %}",
    "{% for x in range(3) %}{% for y in range(3) %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for x in [1, 2] %}{% set z %}{{ x }}{% break %}{% endset %}{% endfor %}[{{ z }}]", "{{ x }}{% for x in [1] %}{{ x }}{% endfor %}{{ x }}",
    "{% for x in [1, 2, 3] %}{% if loop.index0 == 1 %}{{ loop.previtem }}{{ loop.nextitem }}{% endif %}{% endfor %}",
    "{% set g = words|map('upper') %}{{ g|first }}{{ g|list }}{{ g|list }}", "{% for m in messages[::-1] %}{{ (messages|length - 1) - loop.index0 }}{{ m.role }} {% endfor %}",
    "{% for x in d|items %}{{ x }}{% endfor %}", "{% for x in words %}{{ 'yes' if loop.first else 'no' }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}{{ v }}{% endfor %}", "{% for row in words|batch(2) %}{{ row }}{% endfor %}",
    "{% set ns = namespace(stop=false) %}{% for x in range(6) if not ns.stop %}{{ x }}{% if x == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}",
    "{%- for message in messages %}\n    {%- if loop.first %}\n        {{- '[' }}\n    {%- endif %}\n    {{- message.role }}\n{%- endfor %}\n",
    # macros, call, filter, with
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }} {{ m() }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(7) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m() %}{{ name }}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}",
    "{% macro m(x) %}{{ x }}{{ y }}{% endmacro %}{% for y in [1] %}{{ m(y) }}{% endfor %}", "{% for y in [1, 2] %}{% macro m() %}{{ y }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}", "{% macro m() %} a {% endmacro %}[{{ m()|trim }}]{{ m }}",
    "{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in {{ name }}{% endcall %}", "{% macro w() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) w() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m(x, y) %}{{ x }}{{ y }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'x': 3, 'y': 4}) }}{{ m(1, **{'y': 5}) }}",
    "{% macro m(l) %}{{ l|join('-') }}{% endmacro %}{% set r = m(words) %}{{ r|upper }}", "{% macro a() %}A{% endmacro %}{% macro b() %}{{ a() }}B{% endmacro %}{{ b() }}",
    "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}\n{{ m(1) }}\n", "{% macro p(t) %}{% set t = t ~ '!' %}{{ t }}{% endmacro %}{{ p('x') }}{{ t }}",
    "{% filter upper %}a{{ name }}b{% endfilter %}", "{% filter replace('a', 'b')|upper %}banana{% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "{% with %}{% set q = 3 %}{{ q }}{% endwith %}{{ q }}", "{% with name = name|upper %}{{ name }}{% endwith %}{{ name }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}", "{% print name, n %}",
    "{% set j = joiner(', ') %}{{ j() }}a{{ j() }}b{{ j() }}c", "{% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}",
    # undefined
    "{{ missing }}", "[{{ user.nope }}]", "{{ user.nope or 'z' }}",
    "{{ missing and missing.x }}", "{{ missing == none }}", "{{ none_value.foo }}", "{{ n.foo is defined }}",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S %j %f %% %z|%Z') | length > 10 }}", "{{ raise_exception is callable }}",
    # generation
    "{% generation %}{{ name }}{% endgeneration %}", "a{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}z",
    "é{% generation %}{% set x = 1 %}{{ x }}日{% endgeneration %}{{ x }}{% generation %}{% endgeneration %}", "{%- generation -%}  a  {%- endgeneration -%}  b",
    "{% for x in [1, 2] %}{% generation %}{{ loop.index }}{% for y in 'ab' %}{{ y }}{% endfor %}{% endgeneration %};{% endfor %}",
]

ERRORS = [
    "{{ missing.x }}", "{{ user.nope.x }}", "{{ missing + 1 }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ 'a' + missing }}", "{{ words[0].nope.x }}", "{{ missing['x'] }}", "{{ missing() }}",
    "{{ none_value.x.y }}", "{{ user[0].x }}", "{{ missing < 1 }}", "{{ 1 < 'a' }}", "{{ [] < {} }}", "{{ -missing }}", "{{ -'a' }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.5 % 0 }}",
    "{{ raise_exception('Roles must alternate!') }}", "{{ raise_exception('a\nb') }}", "{{ 1 in 5 }}", "{{ 1 in 'a' }}", "{{ missing in 'a' }}", "{{ name[none:'b'] }}", "{{ 'a'[::0] }}", "{{ none_value[1:] }}", "{{ missing[1:] }}", "{{ d[1:] }}",
    "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% set a, b = 1 %}",
    "{{ words|nope }}", "{{ words is nope }}", "{{ words|map('nope')|list }}", "{{ 5|length }}", "{{ none|length }}", "{{ 5|list }}", "{{ words|map('upper')|length }}", "{{ [1, 'a']|sort }}", "{{ words|sum }}", "{{ missing|tojson }}", "{{ [missing]|tojson }}", "{{ range(3)|tojson }}",
    "{{ {[]: 1} }}", "{{ {(1, 2): 1}|tojson }}", "{{ d.get([]) }}", "{{ [] in d }}", "{{ words.append('x') }}", "{{ d.update({'a': 1}) }}", "{{ d.pop('a') }}", "{{ words.sort() }}", "{{ ''.__class__.x }}", "{{ d.__class__() }}", "{{ name.upper.x.y }}",
    "{{ name() }}", "{{ 5() }}", "{{ none() }}", "{{ name.upper(1) }}", "{{ name.split('') }}", "{{ ','.join([1]) }}", "{{ name.startswith(1) }}", "{{ name.replace('a') }}", "{{ name|replace('a') }}", "{{ words|join(x=1) }}", "{{ name|upper(1) }}",
    "{{ '%d' % 'x' }}", "{{ '%s %s' % 'x' }}", "{{ '%s' % ('a', 'b') }}", "{{ 'x' % 1 }}", "{{ '%y' % 1 }}", "{{ '{}'.format() }}", "{{ '{'.format(1) }}", "{{ '}'.format(1) }}", "{{ '{a}'.format(1) }}",
    "{{ range(1000000) }}", "{{ range() }}", "{{ range('a') }}", "{{ range(1, 2, 0) }}", "{{ 'abc'.index('z') }}", "{{ words.index('z') }}", "{{ 'x'|int(0, 99)|nope }}", "{{ missing|int }}", "{{ missing|float }}", "{{ missing|abs }}", "{{ 'a'|abs }}", "{{ 'a'|round }}",
    "{{ dict(1) }}", "{{ dict([1]) }}", "{{ namespace(_a=1) }}", "{% set ns = namespace() %}{% set ns._a = 1 %}", "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{% set ns = namespace() %}{{ ns.x.y }}", "{{ namespace(a=1).a.b.c }}", "{{ name|d('x', 1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{{ name", "{{ name }", "{% if yes %}", "{% if yes %}{% endfor %}", "{% endif %}", "{% nope %}", "{% %}", "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ [1, 2 }}", "{{ {1: 2 }}", "{{ 1 2 }}", "{{ 'a }}", "{{ a b }}", "{{ )( }}", "{{ [) }}", "{{ a.}}", "{{ a[ }}", "{{ a.'b' }}",
    "{{ name|}}", "{{ name is }}", "{{ 1 is 2 }}", "{{ x is string is string }}", "{% for x words %}{% endfor %}", "{% for in words %}{% endfor %}", "{% for 1 in words %}{% endfor %}", "{% for loop in words %}{% endfor %}", "{% for x in words %}{% set loop = 1 %}{% endfor %}", "{% set 1 = 2 %}", "{% set x %}", "{% set = 1 %}",
    "{% macro %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, a) %}{% endmacro %}", "{% break %}", "{% if yes %}{% continue %}{% endif %}", "{% for x in words %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{% for x in words %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{# a", "{% raw %}a", "{% generation %}x", "{{ f(a=1, 2) }}", "{{ f(**a, b) }}", "{{ f(a=1, a=2) }}", "{% filter nope %}x{% endfilter %}",
    "{{ '\\x4' }}", "{{ '\\u12' }}", "{{ \u20ac }}", "{{ $ }}", "{{ a ? b }}", "{{ a && b }}", "{{ !a }}", "{{ a === b }}", "{% call 1 %}{% endcall %}", "{% else %}", "{% if %}{% endif %}", "{% elif x %}", "{{ *a }}", "{{ f(*1) }}", "{{ f(**1) }}", "{{ dict(**1) }}", "{{ range(*5) }}", "{{ dict(**{1: 2}) }}", "a\n\n{{ missing.x }}", "{% for x in words %}\n{{ x.y.z }}\n{% endfor %}",
    "{{ [1]|first|first }}", "{{ 5|reverse }}", "{{ words|map|list }}", "{{ words|selectattr|list }}", "{{ words|dictsort }}", "{{ words|items|list }}", "{{ d|dictsort(by='x') }}", "{{ 1|round(0, 'x') }}", "{{ 5|indent }}", "{{ missing|indent }}", "{{ 5|last }}", "{{ words|map('upper')|last }}", "{{ 'a'|truncate(1) }}", "{{ missing[missing] }}",
]


def reference(template, variables):
    compiled = _compile_jinja_template(template)
    text, spans = _render_with_assistant_indices(compiled, variables["messages"], None, None, False, **{
        k: v for k, v in variables.items() if k != "messages"})
    return text, spans


def jinja():
    cases = []
    for source in EXPRESSIONS.strip("\n").split("\n"):
        cases.append(("{{ " + source + " }}", False))
    cases += [(t, False) for t in TEMPLATES] + [(t, True) for t in ERRORS]
    out = []
    for template, wants_error in cases:
        case = {"template": template}
        try:
            text, spans = reference(template, VARIABLES)
            case["output"] = text
            if spans:
                as_bytes = lambda n: len(text[:n].encode())
                case["spans"] = [[as_bytes(a), as_bytes(b)] for a, b in spans]
            if wants_error:
                print("renders, though an error was meant:", template, "->", text, file=sys.stderr)
        except Exception as error:
            case["error"] = type(error).__name__
            if type(error).__name__ in ("UndefinedError", "TemplateError") and "transformers." not in str(error):
                case["says"] = str(error).replace("\n", " ")
            if not wants_error:
                print("fails, though text was meant:", template, "->", type(error).__name__, error, file=sys.stderr)
        out.append(case)
    write("jinja.json", {"variables": VARIABLES, "cases": out})


# Templates in the style of known families, written for these tests.
CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}"""
LLAMA3 = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
    {%- if message.tool_calls %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception('Only single tool-calls are supported.') }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}<|eom_id|>" }}
    {%- else %}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""
MISTRAL = """{%- set users = messages | selectattr('role', 'equalto', 'user') | list %}
{{- bos_token }}
{%- set ns = namespace(turn=0) %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
        {%- if (message.role == 'user') != (ns.turn % 2 == 0) %}
            {{- raise_exception('Roles must alternate user and assistant.') }}
        {%- endif %}
        {%- set ns.turn = ns.turn + 1 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- if tools and message == users[-1] %}
            {{- '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' + message.content + '[/INST]' }}
    {%- elif message.role == 'assistant' and message.tool_calls %}
        {{- '[TOOL_CALLS] [' }}
        {%- for call in message.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson + '}' }}
            {{- ', ' if not loop.last }}
        {%- endfor %}
        {{- ']' + eos_token }}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + message.content + eos_token }}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS] ' + message.content + '[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}"""
GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}"""
THINK = """{%- macro think(text) %}{{ '<think>\n' + text + '\n</think>\n\n' }}{% endmacro %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}{% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
    {{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\n' }}
    {%- if message.role == 'assistant' %}
        {%- set content = message.content or '' %}
        {%- set reasoning = message.reasoning_content or '' %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (reasoning or loop.last) %}{{ think(reasoning) }}{% endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\n' if content or not loop.first }}
            {{- '<tool_call>\n' + call.function | tojson + '\n</tool_call>' }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {{- '<tool_response>\n' + message.content + '\n</tool_response>' }}
    {%- else %}
        {{- message.content }}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{ think('') }}{% endif %}
{%- endif %}"""
MARKED = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
PHI = """{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"""
PLAIN = """{% for message in messages %}{{ message.role | capitalize }}: {{ message.content }}

{% endfor %}{% if add_generation_prompt %}Assistant: {% endif %}"""
LLAMA2 = """{% for message in messages %}{% if message.role == 'user' %}{{ bos_token + '[INST] ' + message.content.strip() + ' [/INST]' }}{% else %}{{ ' ' + message.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
PARTS = """{% for message in messages %}<{{ message.role }}>{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}{% if part.type == 'image' %}<image>{% else %}{{ part.text | trim }}{% endif %}{% endfor %}{% endif %}</s>
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
# Only the last assistant message is shown; and one that shows a message twice.
FORGETS = """{% for message in messages %}{% if message.role == 'user' or loop.last %}<{{ message.role }}>{{ message.content }}</s>{% endif %}{% endfor %}"""
TWICE = """{% for message in messages %}<{{ message.role }}>{{ message.content }}</s>{% endfor %}{% for message in messages %}{{ message.content }}{% endfor %}"""
# The result of a call stands among the calls.
MERGES = """{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}{% elif m.role == 'assistant' %}<a>{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}<r>{{ messages[loop.index0 + 1].content }}</r>{% endif %}</s>{% endif %}{% endfor %}"""

# The prompt opens the reasoning; earlier turns are written without any.
OPENS = """{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}<think>
{{ m.reasoning_content or '' }}
</think>

{% endif %}{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<assistant><think>
{% endif %}"""
# A channel that the model has to name.
CHANNELS = """{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"""
# No turn is written as the prompt is.
UNLIKE = """{% for m in messages %}<{{ m.role[0] }}>: {{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<a><think>: {% endif %}"""

FAMILIES = {"chatml": CHATML, "llama3": LLAMA3, "mistral": MISTRAL, "gemma": GEMMA, "think": THINK, "marked": MARKED, "phi": PHI,
            "plain": PLAIN, "llama2": LLAMA2, "parts": PARTS, "forgets": FORGETS, "twice": TWICE, "merges": MERGES,
            "opens": OPENS, "channels": CHANNELS, "unlike": UNLIKE}
# What can end a turn beside eos_token.
SPECIALS = {"chatml": ["<|im_end|>"], "llama3": ["<|eot_id|>", "<|eom_id|>"], "gemma": ["<end_of_turn>"], "think": ["<|im_end|>"], "phi": ["<|end|>"],
            "channels": ["<|end|>"]}


def user(text):
    return {"role": "user", "content": text}


def said(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


EMPTY = "<think>\n\n</think>\n\n"
SYSTEM = {"role": "system", "content": "Be brief."}
TWO = [user("Hi"), said("Hello!"), user("Bye"), said("See you.")]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds <a> & b", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}]
ADD = call("add", {"a": 1, "b": 2})
WITH_TOOL = [user("1+2?"), {"role": "assistant", "tool_calls": [ADD]}, {"role": "tool", "content": "3"}, said("It is 3."), user("Thanks"), said("Bye")]

# (template, messages, options, what is trained: a list, or text of the error, or None for not looked at)
CHATS = [
    ("chatml", TWO, {}, ["Hello!<|im_end|>", "See you.<|im_end|>"]),
    ("chatml", [SYSTEM] + TWO, {}, ["Hello!<|im_end|>", "See you.<|im_end|>"]),
    ("chatml", TWO[:3], {"add_generation_prompt": True}, None),
    ("chatml", [user("Hi"), said("")], {}, ["<|im_end|>"]),
    ("chatml", [user("QxtextZ"), said("QxtextZ"), user("YxtextK"), said("YxtextK Q")], {}, ["QxtextZ<|im_end|>", "YxtextK Q<|im_end|>"]),
    ("chatml", [user("a"), said("a"), said("a"), user("a"), said("a")], {}, ["a<|im_end|>"] * 3),
    ("chatml", [user("é日"), said("😀 ünï\n\n")], {}, ["😀 ünï\n\n<|im_end|>"]),
    ("chatml", [said("First!"), user("Hi"), said("<|im_end|>")], {}, ["First!<|im_end|>", "<|im_end|><|im_end|>"]),
    ("chatml", [user("Hi"), {"role": "assistant", "content": None}], {}, None),
    ("chatml", [user("Hi")], {}, []),
    ("llama3", TWO, {}, ["Hello!<|eot_id|>", "See you.<|eot_id|>"]),
    ("llama3", [user(" Hi "), said("  Hello! \n")], {}, ["Hello!<|eot_id|>"]),
    ("llama3", WITH_TOOL, {"tools": TOOLS}, ['{"name": "add", "parameters": {"a": 1, "b": 2}}<|eom_id|>', "It is 3.<|eot_id|>", "Bye<|eot_id|>"]),
    ("llama3", [user("x"), {"role": "assistant", "tool_calls": [ADD, ADD]}], {}, "Only single tool-calls"),
    ("mistral", TWO, {}, ["Hello!</s>", "See you.</s>"]),
    ("mistral", WITH_TOOL, {"tools": TOOLS}, ['[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1, "b": 2}}]</s>', "It is 3.</s>", "Bye</s>"]),
    ("mistral", [user("1"), {"role": "assistant", "tool_calls": [ADD, call("add", {})]}, {"role": "tool", "content": "3"}, {"role": "tool", "content": "4"}, said("7")],
     {"tools": TOOLS}, ['[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1, "b": 2}}, {"name": "add", "arguments": {}}]</s>', "7</s>"]),
    ("mistral", [user("a"), user("b")], {}, "Roles must alternate user and assistant."),
    ("gemma", TWO, {}, ["Hello!<end_of_turn>", "See you.<end_of_turn>"]),
    ("gemma", TWO[:1], {"add_generation_prompt": True}, None),
    ("gemma", [SYSTEM] + TWO, {}, "System role not supported"),
    ("think", TWO, {}, ["Hello!<|im_end|>", EMPTY + "See you.<|im_end|>"]),
    ("think", [said("First!")], {}, [EMPTY + "First!<|im_end|>"]),
    ("think", [user("a"), said("b"), said("c")], {}, ["b<|im_end|>", EMPTY + "c<|im_end|>"]),
    ("think", [user("<|im_start|>assistant\n"), said("<|im_start|>assistant\n")], {}, [EMPTY + "<|im_start|>assistant\n<|im_end|>"]),
    ("think", [user("x<|im_start|>assistant\n" + EMPTY), said("b"), user("c"), said("d")], {"kwargs": {"enable_thinking": False}}, ["b<|im_end|>", "d<|im_end|>"]),
    ("think", [user("a"), said("b", tool_calls=[ADD])], {}, [EMPTY + 'b\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>']),
    ("think", [user("a"), said("", tool_calls=[ADD])], {}, [EMPTY + '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>']),
    ("think", [user("a"), said("", tool_calls=[ADD])], {"kwargs": {"enable_thinking": False}}, ['<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>']),
    # Prompts of which the history shows a part, the whole, nothing.
    ("opens", TWO, {}, ["Hello!</s>", "\n</think>\n\nSee you.</s>"]),
    ("channels", TWO, {}, ["<|channel|>final<|message|>Hello!<|end|>", "<|channel|>final<|message|>See you.<|end|>"]),
    ("unlike", TWO, {}, ["Hello!</s>", "See you.</s>"]),
    ("unlike", [user("Say <a><think>: now"), said("Hello!")], {}, ["Hello!</s>"]),
    ("think", [user("a"), said("b", reasoning_content="r1"), user("c"), said("d", reasoning_content="r2")], {}, ["b<|im_end|>", "<think>\nr2\n</think>\n\nd<|im_end|>"]),
    ("think", [user("a"), said("<think>\nr1\n</think>\n\nb"), user("c"), said("<think>\nr2\n</think>\n\nd")], {}, ["b<|im_end|>", "<think>\nr2\n</think>\n\nd<|im_end|>"]),
    ("think", [user("a"), said("b", thinking="r"), said("c", reasoning="s")], {}, ["<think>\nr\n</think>\n\nb<|im_end|>", "<think>\ns\n</think>\n\nc<|im_end|>"]),
    ("think", WITH_TOOL, {}, ['<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>', "It is 3.<|im_end|>", EMPTY + "Bye<|im_end|>"]),
    ("think", [user("a"), said("Wait.", tool_calls=[ADD, ADD], reasoning_content="hm")], {},
     ['<think>\nhm\n</think>\n\nWait.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>']),
    ("think", TWO[:3], {"add_generation_prompt": True, "kwargs": {"enable_thinking": False}}, None),
    ("think", TWO, {"kwargs": {"enable_thinking": False}}, ["Hello!<|im_end|>", "See you.<|im_end|>"]),
    ("think", TWO[:1], {"add_generation_prompt": True}, None),
    ("marked", TWO, {}, ["Hello!<|im_end|>", "See you.<|im_end|>"]),
    ("marked", [said("é"), user("x"), said("")], {}, ["é<|im_end|>", "<|im_end|>"]),
    ("phi", TWO, {}, ["Hello!<|end|>", "See you.<|end|>"]),
    ("plain", TWO, {}, ["Hello!", "See you."]),
    ("plain", [user("a"), said("b\n\nUser: c"), user("d"), said("e")], {}, ["b\n\nUser: c", "e"]),
    ("llama2", TWO, {}, ["Hello! </s>", "See you. </s>"]),
    ("parts", [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}, {"role": "assistant", "content": [{"type": "text", "text": " A cat "}]}], {}, ["A cat</s>"]),
    ("parts", TWO, {}, ["Hello!</s>", "See you.</s>"]),
    ("forgets", TWO, {}, "message 2 (assistant) cannot be located"),
    ("forgets", TWO[:2], {}, ["Hello!</s>"]),
    ("think", [user("a"), said("", tool_calls=[ADD], reasoning_content="r"), {"role": "tool", "content": "3"}, said("b", reasoning_content="s"), user("c"), said("d")], {},
     ['<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>', "b<|im_end|>", EMPTY + "d<|im_end|>"]),
    ("think", [user("a"), said("", tool_calls=[ADD], reasoning_content="r"), {"role": "tool", "content": "3"}, said("b", reasoning_content="s")], {},
     ['<think>\nr\n</think>\n\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>', "<think>\ns\n</think>\n\nb<|im_end|>"]),
    ("merges", WITH_TOOL, {}, "message 2 (assistant) cannot be located"),
    ("twice", TWO, {}, "message 2 (assistant) cannot be located"),
]


def tokenizer(template):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"x": 0}, unk_token="x")), bos_token="<s>", eos_token="</s>")
    made.chat_template = template
    return made


def apply(made, messages, options):
    return made.apply_chat_template(messages, tools=options.get("tools"), add_generation_prompt=options.get("add_generation_prompt", False),
                                    tokenize=False, **options.get("kwargs", {}))


def check_begin(made, messages, options, output, trained):
    """What is trained last begins where the generation prompt ends, if the conversation goes on from that."""
    messages = messages[:max(i for i, message in enumerate(messages) if message["role"] == "assistant")]
    try:
        prompt = apply(made, messages, {**options, "add_generation_prompt": True})
        bare = apply(made, messages, options)
    except Exception:
        return
    if output.startswith(prompt) and prompt != bare:
        assert output[len(prompt):].startswith(trained[-1]), (output, trained)


def chat():
    cases = []
    for name, messages, options, trained in CHATS:
        case = {"template": name, "messages": messages, **options}
        try:
            case["output"] = apply(tokenizer(FAMILIES[name]), messages, options)
        except Exception as error:
            print(name, type(error).__name__, error, file=sys.stderr)
            case["error"] = str(error)
        if isinstance(trained, list) and trained and "{%- generation" not in FAMILIES[name]:
            check_begin(tokenizer(FAMILIES[name]), messages, options, case["output"], trained)
        if trained is not None:
            case["trained"] = trained
        cases.append(case)
    write("chat_templates.json", {"templates": FAMILIES, "specials": SPECIALS, "cases": cases})


# ---- real templates ----

ROLES = {"human": "user", "gpt": "assistant", "observation": "tool", "system": "system"}


def to_messages(record):
    """ShareGPT's turns as messages; the C test does the same."""
    messages = []
    turns = list(record["conversations"])
    if "chosen" in record:
        turns.append(record["chosen"])
    if record.get("system"):
        messages.append({"role": "system", "content": record["system"]})
    for turn in turns:
        if turn["from"] == "function_call":
            function = json.loads(turn["value"])
            messages.append({"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]})
        else:
            messages.append({"role": ROLES[turn["from"]], "content": turn["value"]})
    return messages


def fnv(text):
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return "%016x" % value


def real(name, model_dir, data_dir):
    config = json.load(open(os.path.join(model_dir, "tokenizer_config.json"), encoding="utf-8"))
    made = tokenizer(config["chat_template"])
    for key in ("bos_token", "eos_token"):
        token = config.get(key)
        setattr(made, key, token["content"] if isinstance(token, dict) else token)
    out = {}
    for file in ("glaive_toolcall_en_demo.json", "dpo_en_demo.json"):
        hashes = []
        for i, record in enumerate(json.load(open(os.path.join(data_dir, file), encoding="utf-8"))):
            options = {"add_generation_prompt": i % 3 == 0, "kwargs": {"enable_thinking": i % 2 == 0} if i % 5 == 0 else {}}
            if record.get("tools"):
                options["tools"] = json.loads(record["tools"])
            try:
                hashes.append(fnv(apply(made, to_messages(record), options)))
            except Exception as error:
                hashes.append("error")
                print(file, i, type(error).__name__, error, file=sys.stderr)
        out[file] = hashes
    write("templates_%s.json" % name, out)


def write(name, value):
    with open(os.path.join(GOLDEN, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=1)
        file.write("\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["jinja"]:
        jinja()
    elif sys.argv[1:] == ["chat"]:
        chat()
    elif len(sys.argv) == 5 and sys.argv[1] == "real":
        real(*sys.argv[2:])
    else:
        sys.exit(__doc__)
