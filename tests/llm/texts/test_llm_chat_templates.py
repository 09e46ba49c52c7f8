"""Chat templates find what they find in `transformers`: texts of twenty templates, recorded, and compared with it where it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tempo_llm.errors import TokenizerError
from tempo_llm.tokenizer import Tokenizer

pytest.importorskip("jinja2")

TALK = [
    {"role": "system", "content": "Be <kind> & brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": 'Grüß "dich"'},
    {"role": "user", "content": "  two\nlines  "},
]
CALLED = [
    {"role": "user", "content": "1 + 2?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"b": 2, "a": [1, None, True]}}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "3"},
]
THOUGHT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "reasoning": "Hm.", "content": "Yes", "tool_calls": None}]
PARAMETERS = {"type": "object", "properties": {"b": {"type": "number"}, "a": {}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds <ä>", "parameters": PARAMETERS}}]
DOCUMENTS = [{"title": "One", "text": "it's"}, {"title": "Two", "text": "é"}]
SETTINGS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": {
        "__type": "AddedToken",
        "content": "</s>",
        "lstrip": False,
        "rstrip": False,
        "single_word": False,
        "normalized": False,
    },
    "pad_token": None,
    "image_token": "<img>",
    "extra_special_tokens": {"boi_token": "<boi>", "eoi_token": "<eoi>"},
}

TEMPLATES: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any]]] = {  # the template, a conversation, and more for it
    "turns between marks": (
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        TALK,
        {},
    ),
    "headers, the first with the begin token": (
        "{% for m in messages %}{% set content = '<|' + m.role + '|>\\n\\n' + m['content'] | trim + '<|eot|>' %}"
        "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}",
        TALK,
        {},
    ),
    "other names of roles, and turns that alternate": (
        "{{ bos_token }}{% for m in messages[1:] %}"
        "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
        "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}\n<start>{{ role }}\n{{ m['content'] | trim }}<end>\n"
        "{% endfor %}",
        TALK,
        {},
    ),
    "the system message in the last question": (
        "{%- if messages[0]['role'] == 'system' %}\n    {%- set system = messages[0]['content'] %}\n"
        "    {%- set rest = messages[1:] %}\n{%- else %}\n    {%- set rest = messages %}\n{%- endif %}\n"
        "{%- for m in rest %}\n    {%- if m['role'] == 'user' %}\n        {%- if loop.last and system is defined %}\n"
        "            {{- '[INST] ' + system + '\\n\\n' + m['content'] + '[/INST]' }}\n        {%- else %}\n"
        "            {{- '[INST] ' + m['content'] + '[/INST]' }}\n        {%- endif %}\n    {%- else %}\n"
        "        {{- ' ' + m['content'] + eos_token }}\n    {%- endif %}\n{%- endfor %}",
        TALK,
        {},
    ),
    "white space of lines with blocks": (
        "A\n  {% for m in messages %}\n  {{ m.role }}\n  {%- if not loop.last %}, {% endif %}\n  {# a remark #}\n  {% endfor %}\nZ\n",
        TALK,
        {},
    ),
    "tools, one a line": (
        "{%- if tools %}\n    {{- '<tools>' }}\n    {%- for tool in tools %}\n        {{- '\\n' }}\n        {{- tool | tojson }}\n"
        "    {%- endfor %}\n    {{- '\\n</tools>' }}\n{%- endif %}",
        TALK,
        {"tools": TOOLS},
    ),
    "tools with indents": ("{% for t in tools %}{{ t | tojson(indent=4) }}\n\n{% endfor %}", TALK, {"tools": TOOLS}),
    "short JSON in order": ("{{ tools | tojson(separators=(',', ':'), sort_keys=true) }}", TALK, {"tools": TOOLS}),
    "JSON of ASCII": ("{{ messages[2].content | tojson(ensure_ascii=True) }}{{ messages[2] | tojson(ensure_ascii=False) }}", TALK, {}),
    "the arguments of tojson by their places": ("{{ messages[2] | tojson(true, 1) }}", TALK, {}),
    "what was called, with its results": (
        "{% for m in messages %}{% if m.tool_calls %}{% for call in m.tool_calls %}{% set call = call.function %}"
        "[{{ call.name }}{% for key, value in call.arguments.items() %} {{ key }}={{ value | tojson }}{% endfor %}]"
        "{{ call.arguments | tojson }}{% endfor %}{{ 'no content' if m.content is not defined }}"
        "{% elif m.role == 'tool' %}<{{ m.name }}: {{ m.content }}>{% else %}{{ m.content }}{% endif %}{% endfor %}",
        CALLED,
        {"tools": TOOLS},
    ),
    "what is none, and what is not there": (
        "{{ tools is none }} {{ documents is none }} {{ tools is defined }} {{ documents is defined }} {{ tools }} {{ sep_token is defined }} "
        "{{ pad_token is defined }} {{ date_string is defined }} {{ tools | tojson }}{% if not documents %}!{% endif %}",
        TALK,
        {},
    ),
    "documents": (
        "{% for document in documents %}{{ loop.index }}. {{ document['title'] }}: {{ document.text }}\n{% endfor %}"
        "{{ documents | map(attribute='title') | join('/') }}",
        TALK,
        {"documents": DOCUMENTS},
    ),
    "special tokens of its own": ("{{ bos_token }}{{ boi_token }}{{ image_token }}{{ eoi_token }}{{ eos_token }}{{ cls_token }}", TALK, {}),
    "break and continue": (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.content }}"
        "{% if m.role == 'assistant' %}{% break %}{% endif %}{% endfor %}",
        TALK,
        {},
    ),
    "marks of what the model wrote": (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{% set end = eos_token %}{{ m.content }}{{ end }}"
        "{% endgeneration %}{{ end }}{% else %}<{{ m.content }}>{% endif %}\n{% endfor %}",
        TALK,
        {},
    ),
    "a date": ("{% if strftime_now is defined %}{% set date = strftime_now('100%%') %}{% else %}{% set date = '?' %}{% endif %}{{ date }}", TALK, {}),
    "objects of its own": (
        "{% set ns = namespace(found=false, last='') %}{% for m in messages | reverse if m.role == 'user' and not ns.found %}"
        "{% set ns.found = true %}{% set ns.last = m.content | trim | upper %}{% endfor %}{{ ns.last }} {{ dict(a=1, b=[2]) | tojson }}"
        "{{ dict(a=1).get('c', 'none') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ range(3) | list }}",
        TALK,
        {},
    ),
    "thoughts, and what is null": (
        "{% for m in messages %}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
        "{{ 'calls' if 'tool_calls' in m }}{% endfor %} {{ messages[1].thinking }} {{ messages[1] | tojson }}",
        THOUGHT,
        {},
    ),
    "macros": (
        "{%- macro show(name, value='-', deep=false) -%}{{ name }}{{ '!' if deep }}={{ value }};{%- endmacro -%}"
        "{% set messages = messages[1:] %}{{ show('a') }}{{ show('b', messages[0].content, deep=true) }}"
        "{{ messages[0].content.split('i')[0].strip() }}{{ messages[1]['content'][::-1] }}{{ 7 // 2 }}{{ '%05.1f' | format(2.25) }}",
        TALK,
        {},
    ),
    "further words for it": ("{{ 'think' if enable_thinking is defined and enable_thinking }}{{ level | default('low') }}", TALK, {"enable_thinking": True}),
}  # fmt: skip
RECORDED: dict[str, str] = {
    "turns between marks": "<|im_start|>system\n"
    "Be <kind> & brief.<|im_end|>\n"
    "<|im_start|>user\n"
    "Hi<|im_end|>\n"
    "<|im_start|>assistant\n"
    'Grüß "dich"<|im_end|>\n'
    "<|im_start|>user\n"
    "  two\n"
    "lines  <|im_end|>\n"
    "<|im_start|>assistant\n",
    "headers, the first with the begin token": "<s><|system|>\n"
    "\n"
    "Be <kind> & brief.<|eot|><|user|>\n"
    "\n"
    "Hi<|eot|><|assistant|>\n"
    "\n"
    'Grüß "dich"<|eot|><|user|>\n'
    "\n"
    "two\n"
    "lines<|eot|>",
    "other names of roles, and turns that alternate": "<s><start>user\n"
    "Hi<end>\n"
    "<start>model\n"
    'Grüß "dich"<end>\n'
    "<start>user\n"
    "two\n"
    "lines<end>\n",
    "the system message in the last question": '[INST] Hi[/INST] Grüß "dich"</s>[INST] Be <kind> & brief.\n'
    "\n"
    "  two\n"
    "lines  [/INST]",
    "white space of lines with blocks": "A\n  system,   user,   assistant,   userZ",
    "tools, one a line": "<tools>\n"
    '{"type": "function", "function": {"name": "add", "description": "Adds <ä>", "parameters": {"type": '
    '"object", "properties": {"b": {"type": "number"}, "a": {}}, "required": ["a"]}}}\n'
    "</tools>",
    "tools with indents": "{\n"
    '    "type": "function",\n'
    '    "function": {\n'
    '        "name": "add",\n'
    '        "description": "Adds <ä>",\n'
    '        "parameters": {\n'
    '            "type": "object",\n'
    '            "properties": {\n'
    '                "b": {\n'
    '                    "type": "number"\n'
    "                },\n"
    '                "a": {}\n'
    "            },\n"
    '            "required": [\n'
    '                "a"\n'
    "            ]\n"
    "        }\n"
    "    }\n"
    "}\n"
    "\n",
    "short JSON in order": '[{"function":{"description":"Adds '
    '<ä>","name":"add","parameters":{"properties":{"a":{},"b":{"type":"number"}},"required":["a"],"type":"object"}},"type":"function"}]',
    "JSON of ASCII": '"Gr\\u00fc\\u00df \\"dich\\""{"role": "assistant", "content": "Grüß \\"dich\\""}',
    "the arguments of tojson by their places": '{\n "role": "assistant",\n "content": "Gr\\u00fc\\u00df \\"dich\\""\n}',
    "what was called, with its results": '1 + 2?[add b=2 a=[1, null, true]]{"b": 2, "a": [1, null, true]}no content<add: 3>',
    "what is none, and what is not there": "True True True True None False False False null!",
    "documents": "1. One: it's\n2. Two: é\nOne/Two",
    "special tokens of its own": "<s><boi><img><eoi></s>",
    "break and continue": 'HiGrüß "dich"',
    "marks of what the model wrote": '<Be <kind> & brief.><Hi>Grüß "dich"</s><  two\nlines  >',
    "a date": "100%",
    "objects of its own": 'TWO\nLINES {"a": 1, "b": [2]}none 2 [0, 1, 2]',
    "thoughts, and what is null": 'Hi<think>Hm.</think>Yes Hm. {"thinking": "Hm.", "role": "assistant", "reasoning": "Hm.", '
    '"content": "Yes", "reasoning_content": "Hm."}',
    "macros": 'a=-;b!=Hi;H"hcid" ßürG3002.2',
    "further words for it": "thinklow",
}


def directory_of(tmp_path: Path, write_tokenizer: Any, **settings: Any) -> Path:
    write_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**SETTINGS, **settings}))
    return tmp_path


def rendered(directory: Path, messages: list[dict[str, Any]], more: dict[str, Any]) -> str:
    template = Tokenizer.from_directory(directory).template
    assert template is not None
    return template.render_all([messages], True, more)[0]


def rendered_by_transformers(directory: Path, messages: list[dict[str, Any]], more: dict[str, Any]) -> str:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **more))


@pytest.mark.parametrize("name", TEMPLATES)
def test_texts_of_templates(name: str, tmp_path: Path, write_tokenizer: Any) -> None:
    template, messages, more = TEMPLATES[name]
    assert rendered(directory_of(tmp_path, write_tokenizer, chat_template=template), messages, more) == RECORDED[name]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TEMPLATES)
def test_texts_are_those_of_transformers(name: str, tmp_path: Path, write_tokenizer: Any) -> None:
    template, messages, more = TEMPLATES[name]
    directory = directory_of(tmp_path, write_tokenizer, chat_template=template)
    assert rendered_by_transformers(directory, messages, more) == RECORDED[name]


DEFAULT, TOOL_USE = "{{ messages[0].content }}", "{{ tools | length }} tools"
NAMED = [{"name": "default", "template": DEFAULT}, {"name": "tool_use", "template": TOOL_USE}]
PLACES: dict[str, tuple[Any, dict[str, str]]] = {  # `chat_template` of tokenizer_config.json, and files
    "a list": (NAMED, {}),
    "files": ("no", {"chat_template.jinja": DEFAULT, "additional_chat_templates/tool_use.jinja": TOOL_USE}),
    "files before a list": ([*NAMED, {"name": "tool_use", "template": "no"}], {"chat_template.jinja": "{{ 'file' }}"}),
}


@pytest.mark.parametrize("oracle", [False, pytest.param(True, marks=[pytest.mark.torch, pytest.mark.filterwarnings("ignore")])])
@pytest.mark.parametrize(
    ("place", "texts"), [("a list", ("Hi", "1 tools")), ("files", ("Hi", "1 tools")), ("files before a list", ("file", "file"))]
)
def test_a_template_for_tools(place: str, texts: tuple[str, str], oracle: bool, tmp_path: Path, write_tokenizer: Any) -> None:
    settings, files = PLACES[place]
    directory = directory_of(tmp_path, write_tokenizer, chat_template=settings)
    for name, text in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    render = rendered_by_transformers if oracle else rendered
    assert (render(directory, TALK[1:], {}), render(directory, TALK[1:], {"tools": TOOLS})) == texts


@pytest.mark.parametrize("oracle", [False, pytest.param(True, marks=[pytest.mark.torch, pytest.mark.filterwarnings("ignore")])])
@pytest.mark.parametrize("is_new", [False, True])
def test_special_tokens_of_older_files(is_new: bool, oracle: bool, tmp_path: Path, write_tokenizer: Any) -> None:
    """special_tokens_map.json counts, unless tokenizer_config.json has `added_tokens_decoder`."""
    template = "{{ bos_token }}{{ eos_token }}{{ unk_token }}"
    settings = {"added_tokens_decoder": {"0": {"content": "<unk>", "special": True}}} if is_new else {}
    directory = directory_of(tmp_path, write_tokenizer, chat_template=template, bos_token="<s>", eos_token="</s>", **settings)
    (directory / "special_tokens_map.json").write_text(json.dumps({"bos_token": {"content": "</s>"}, "unk_token": "<s>"}))
    render = rendered_by_transformers if oracle else rendered
    assert render(directory, TALK, {}) == ("<s></s>" if is_new else "</s></s><s>")


@pytest.mark.parametrize(
    "text", ["{% set _ = messages.append(1) %}", "{{ messages[0].update({'role': 'x'}) }}", "{{ ''.__class__.__name__ }}"]
)
def test_what_is_forbidden_there_is_forbidden_here(text: str, tmp_path: Path, write_tokenizer: Any) -> None:
    with pytest.raises(TokenizerError, match="chat template fails: SecurityError"):
        rendered(directory_of(tmp_path, write_tokenizer, chat_template=text), TALK, {})


def test_a_damaged_map_of_special_tokens(tmp_path: Path, write_tokenizer: Any) -> None:
    directory = directory_of(tmp_path, write_tokenizer, chat_template=DEFAULT)
    (directory / "special_tokens_map.json").write_text("[1]")
    with pytest.raises(TokenizerError, match=r"special_tokens_map\.json is not a JSON object"):
        Tokenizer.from_directory(directory)


def test_json_of_ascii_keeps_special_tokens_apart(tmp_path: Path, write_tokenizer: Any) -> None:
    """A special token that a message spells out stays text there."""
    tokenizer = Tokenizer.from_directory(directory_of(tmp_path, write_tokenizer, chat_template="{{ messages | tojson(true) }}"))
    messages = [{"role": "user", "content": "a</s>é\x7f\U0001f600\n"}]
    ids = tokenizer.encode_messages(messages, {})
    assert 2 not in ids and tokenizer.decode(ids) == json.dumps(messages)
