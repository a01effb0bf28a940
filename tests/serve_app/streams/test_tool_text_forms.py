"""Forms of calls in text beyond the golden cases: what is one, what is broken, what is prose."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.runs import Finish, Json, TextDelta
from tests.serve_app.streams.tool_cases import (
    ALL_TOOLS,
    ARGV,
    NOTE,
    PING,
    STRING,
    WEATHER,
    cuts,
    feed,
    say,
    step,
    tool,
)

ROME = "<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>"
ROME_CALL = ("get_weather", {"city": "Rome"})
SCAN = tool(
    "scan",
    "path",
    path=STRING,
    deep={"type": "boolean"},
    tags={"type": "array", "items": STRING},
    note={"type": ["string", "null"]},
)
LINES = tool("run", "commands", commands={"type": "array", "items": STRING})
ARGVS = tool("run", "commands", commands={"type": "array", "items": ARGV})
BOTH = tool("run", "commands", commands={"type": "array", "items": {"anyOf": [STRING, ARGV]}})


def note(body: str) -> str:
    return (
        "<tool_call>\n<function=save_note>\n<parameter=title>\nt\n</parameter>\n"
        f"<parameter=body>\n{body}\n</parameter>\n</function>\n</tool_call>"
    )


def scan(key: str, text: str) -> str:
    return (
        "<tool_call><function=scan><parameter=path>/</parameter>"
        f"<parameter={key}>{text}</parameter></function></tool_call>"
    )


def run(commands: str) -> str:
    return f"<function=run><parameter=commands>{commands}</parameter></function>"


def noted(body: str) -> tuple[str, Any]:
    return ("save_note", {"title": "t", "body": body})


#: Text → the tools, the calls in it, and the text that is left.
CALLS: dict[str, tuple[Json, str, list[tuple[str, Any]], str]] = {
    "no-wrapper": (WEATHER, ROME, [ROME_CALL], ""),
    "no-wrapper-twice": (PING, "<function=ping></function>\n" * 2, [("ping", {})] * 2, ""),
    "json": (
        WEATHER,
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>',
        [ROME_CALL],
        "",
    ),
    "json-arguments-as-text": (
        WEATHER,
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Rome\\"}"}</tool_call>',
        [ROME_CALL],
        "",
    ),
    "json-list": (
        PING,
        '<tool_call>[{"name": "ping"}, {"name": "ping", "arguments": {}}]</tool_call>',
        [("ping", {})] * 2,
        "",
    ),
    "python-in-wrapper": (
        WEATHER,
        "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'Rome'}}</tool_call>",
        [ROME_CALL],
        "",
    ),
    "closer-in-json": (
        NOTE,
        '<tool_call>{"name":"save_note","arguments":{"title":"t","body":"</tool_call>"}}</tool_call>',
        [noted("</tool_call>")],
        "",
    ),
    "fence": (WEATHER, f"```\n<tool_call>{ROME}</tool_call>\n```", [ROME_CALL], "```\n\n```"),
    "white-space-before": (PING, "\n\n{{ping()}}", [("ping", {})], ""),
    "sentinel-behind": (PING, "{{ping()}}<|im_end|>\n", [("ping", {})], ""),
    "sentinels-between": (
        WEATHER,
        "<tool_call><|im_end|><function=get_weather><|im_end|><parameter=city>Rome</parameter>"
        "<|mask_end|></function><|im_end|></tool_call>",
        [ROME_CALL],
        "",
    ),
    "orphan-closers": (
        WEATHER,
        f"{ROME}</tool_call> <|im_end|></function>\n</tool_call> Done",
        [ROME_CALL],
        " Done",
    ),
    "first-indent": (NOTE, note("    x = 1"), [noted("    x = 1")], ""),
    "own-line-breaks": (NOTE, note("\nline\n"), [noted("\nline\n")], ""),
    "one-line-break": (
        WEATHER,
        "<function=get_weather><parameter=city>Rome\n</parameter></function>",
        [ROME_CALL],
        "",
    ),
    "carriage-returns": (WEATHER, ROME.replace("\n", "\r\n"), [ROME_CALL], ""),
    "closers-in-a-value": (
        NOTE,
        note("a </tool_call> b </parameter> c </function> d <|im_end|> <x> &lt;"),
        [noted("a </tool_call> b </parameter> c </function> d <|im_end|> <x> &lt;")],
        "",
    ),
    "json-string-for-text": (
        WEATHER,
        '{{ping()}}<function=get_weather><parameter=city>"Rome"</parameter></function>'[10:],
        [ROME_CALL],
        "",
    ),
    "empty-value": (WEATHER, ROME.replace("\nRome\n", ""), [("get_weather", {"city": ""})], ""),
    "python-word": (SCAN, scan("deep", "True"), [("scan", {"path": "/", "deep": True})], ""),
    "encoded-twice": (
        SCAN,
        scan("tags", '"[\\"a\\"]"'),
        [("scan", {"path": "/", "tags": ["a"]})],
        "",
    ),
    "null": (SCAN, scan("note", "null"), [("scan", {"path": "/", "note": None})], ""),
    "undeclared": (SCAN, scan("more", "5"), [("scan", {"path": "/", "more": 5})], ""),
    "undeclared-text": (SCAN, scan("more", "0x1F"), [("scan", {"path": "/", "more": "0x1F"})], ""),
    "spaces-in-braces": (WEATHER, "{{ get_weather(city='Rome') }}", [ROME_CALL], ""),
    "three-braces": (PING, "{{{ping()}}}", [("ping", {})], "{}"),
    "three-quotes": (
        NOTE,
        '{{save_note(title="t", body="""a "b" }} \n c""")}}',
        [noted('a "b" }} \n c')],
        "",
    ),
    "per-command": (
        BOTH,
        run('["git status", "cd a && ls"]'),
        [("run", {"commands": [{"command": "git", "args": ["status"]}, "cd a && ls"]})],
        "",
    ),
    "one-command": (LINES, run("ls -la"), [("run", {"commands": ["ls -la"]})], ""),
    "one-command-as-argv": (
        ARGVS,
        run("ls -la"),
        [("run", {"commands": [{"command": "ls", "args": ["-la"]}]})],
        "",
    ),
}


@pytest.mark.clause("TEXT-1", "TEXT-2", "ARGS-1", "ARGS-2", "ARGS-4")
@pytest.mark.parametrize(("called", "text", "calls", "rest"), CALLS.values(), ids=CALLS)
def test_calls(called: Json, text: str, calls: list[tuple[str, Any]], rest: str) -> None:
    """Each becomes the calls that it means, and leaves the text around it."""
    for pieces in cuts(text):
        told = say(pieces, [called])
        assert told.error is None
        assert (told.calls, told.content) == (calls, rest)
        assert told.turn.finish_reason == "tool_calls"


WRAPPED = "<tool_call><function=get_weather>{}</function></tool_call>"
BROKEN = {
    "parameter-not-closed": WRAPPED.format("<parameter=city>Rome"),
    "parameter-closed-twice": WRAPPED.format("<parameter=city>R</parameter></parameter>"),
    "parameter-swallowed": WRAPPED.format("<parameter=city>R<parameter=unit>celsius</parameter>"),
    "parameter-tag": "<function=get_weather><parameter=<city>Rome</parameter></function>",
    "parameter-twice": WRAPPED.format("<parameter=city>R</parameter>" * 2),
    "function-not-closed": "<tool_call><function=ping><parameter=a>1</parameter></tool_call>",
    "text-in-function": "<tool_call><function=ping>now</function></tool_call>",
    "text-behind-function": "<tool_call><function=ping></function>now</tool_call>",
    "name-not-closed": "<function=get_weather\n<parameter=city>Rome</parameter></function>",
    "name-not-closed-in-wrapper": "<tool_call><function=ping\n</function></tool_call>",
    "attribute": '<tool_call><function name="ping"></function></tool_call>',
    "other-tag": "<tool_call><invoke>ping</invoke></tool_call>",
    "empty-wrapper": "<tool_call> <|im_end|> </tool_call>",
    "two-wrappers": "<tool_call><tool_call><function=ping></function></tool_call>",
    "cut-in-closer": "<tool_call><function=ping></function></tool_ca",
    "cut-in-empty-wrapper": "<tool_call></tool_ca",
    "only-opener": "Let me see. <tool_call>",
    "json-without-name": '<tool_call>{"arguments": {}}</tool_call>',
    "json-unknown": '<tool_call>{"name": "pong"}</tool_call>',
    "json-no-object": '<tool_call>{"name": "ping", "arguments": [1]}</tool_call>',
    "json-bad-arguments": '<tool_call>{"name": "ping", "arguments": "{"}</tool_call>',
    "json-bad": "<tool_call>{name: ping}</tool_call>",
    "json-brackets": '<tool_call>{"name": "ping"]</tool_call>',
    "json-cut": '<tool_call>{"name": "pi',
    "json-empty-list": "<tool_call>[]</tool_call>",
    "json-and-text": '<tool_call>{"name": "ping"} now</tool_call>',
    "keyword-twice": "{{get_weather(city='a', city='b')}}",
    "positional": "{{get_weather('Rome')}}",
    "braces-go-on": "{{ping()|upper}}",
    "braces-cut": "{{get_weather(city='Rome'",
    "braces-cut-at-end": "{{ping()}",
    "brackets": "{{ping(a=[1)}}",
    "unknown-in-braces": "{{ config(materialized='table') }}",
    "unknown-without-schema": "{{nobody(a=1)}}",
    "unread-form": '[TOOL_CALLS] [{"name": "ping", "arguments": {}}]',
    "unread-form-cut": "Wait.[TOOL_CALLS]",
}


@pytest.mark.clause("TEXT-3", "TEXT-5")
@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_broken_blocks(text: str) -> None:
    """Each is an error, and nothing of it is shown first."""
    start = min(text.find(mark) for mark in ("<", "{", "[") if mark in text)
    for pieces in cuts(text):
        told = say(pieces)
        assert told.error
        assert told.calls == []
        assert told.content == text[:start]


PROSE = {
    "closer": "The tag </tool_call> ends it, </function> too.",
    "code": 'The model writes `<tool_call>` or "<tool_call>" before a call.',
    "code-in-html": "<code><tool_call></code>",
    "function-in-code": "Write `<function=ping>` to begin.",
    "function-of-none": "In lisp notation <function=foo> is odd, <function=> too.",
    "function-not-closed": "See <function=ping and <function=\nx> there",
    "long-name": "<function=" + "x" * 200 + ">",
    "unfinished": "Let me <tool_ca",
    "unfinished-function": "Let me <function=get_wea",
    "unfinished-braces": "Let me {{get_weather",
    "unfinished-unknown": "Let me {{nobody(a='b'",
    "positional": "{{ url_for('x') }} {{ f(x)|e }} {{ a.b() }} {{ super() }}",
    "template": "{% if x %}{{ loop.index0 }}{{ x == 1 }}{{ f(x=y) }}{{ f(x=1)|e }}{% endif %}",
    "comparison": "{{ f(x==1) }} {{ f(x=1 }} {{ f(x=[1) }}",
    "name-only": "{{ get_weather }} {{ping}} {{get_web_root}}",
    "long-unknown": "{{ f(x='" + "a" * 5000 + "') }}",
    "marker-in-code": "It writes `[TOOL_CALLS]` first; [TOOLS], [x](y), [TOOL_CALLS] is a marker.",
    "marker-and-word": "Its marker is [TOOL_CALLS] and",
    "white-space": " \n ",
    "much-white-space": "\n" * 200 + "x",
}


@pytest.mark.clause("TEXT-7")
@pytest.mark.parametrize("text", PROSE.values(), ids=PROSE)
def test_prose(text: str) -> None:
    """What only looks like a block stays as it is."""
    for pieces in [[text], list(text)]:
        told = say(pieces)
        assert told.error is None
        assert (told.content, told.calls) == (text, [])


@pytest.mark.clause("TEXT-3")
def test_a_block_has_a_greatest_length() -> None:
    """A block that is too long is an error, as soon as it is, and whatever its pieces."""
    text = note("x" * 500)
    for limit, fails in ((len(text) - 1, True), (len(text), False)):
        for pieces in ([text], list(text)):
            events = [*map(TextDelta, pieces), Finish("stop")]
            told = feed(step([NOTE], max_block_chars=limit), events)
            assert bool(told.error) is fails


def test_a_block_in_braces_has_a_greatest_length_too() -> None:
    """Also where its quotes never end."""
    text = "{{save_note(title='" + "x" * 500
    assert feed(step([NOTE], max_block_chars=400), [*map(TextDelta, text)]).error


def test_sentinels_of_the_caller() -> None:
    """A configuration may know other sentinels."""
    text = "<tool_call>[EOT]<function=ping></function></tool_call>"
    events = [TextDelta(text), Finish("stop")]
    assert feed(step(ALL_TOOLS, sentinels=("[EOT]",)), events).calls == [("ping", {})]
    assert feed(step(ALL_TOOLS), events).error
