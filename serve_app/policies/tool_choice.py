"""The ladder for servers that refuse native tool calling (clauses TOOL-2 and TOOL-3).

A vLLM without a tool-call parser answers 400 to tools. Then, one rung at a time: the only tool is
forced, which needs no parser in some versions; at last the tools are taught to the model in the
system message, in the dialect that `tool_text` reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

from pydantic_core import from_json, to_json

from serve_app.runs import Json, RunRequest

#: Either flag in a refusal means that the server has no parser for tool calls.
_FLAGS: Final = ("--enable-auto-tool-choice", "--tool-call-parser")

_INSTRUCTION: Final = """# Tools

You can call these functions. Each line is one function as JSON:
{tools}

To call a function, write exactly this and nothing after it:
<tool_call>
<function=NAME>
<parameter=KEY>
VALUE
</parameter>
</function>
</tool_call>

Write one <parameter> for each argument: text as it is, anything else as JSON. Write one <tool_call>
for each call. What a function gave back comes to you between <tool_response> and </tool_response>.
{choice}"""


def next_rung(
    run: RunRequest, refusal: str, *, callers_choice: str | Json | None
) -> RunRequest | None:
    """What to try after a refusal; `None` where the refusal is about something else.

    Args:
        run: The request that was refused.
        refusal: What the upstream said.
        callers_choice: What the caller insists on; the request may have another from a rung.
    """
    if not run.tools or not any(flag in refusal for flag in _FLAGS):
        return None
    choice = run.tool_choice
    if choice == "none":
        return None
    if len(run.tools) == 1 and not isinstance(choice, dict):
        name = run.tools[0]["function"]["name"]
        return replace(run, tool_choice={"type": "function", "function": {"name": name}})
    return as_text(run, callers_choice)


def as_text(run: RunRequest, choice: str | Json | None) -> RunRequest:
    """The request with its tools, and what was called of them, written as text.

    Args:
        run: A request with tools.
        choice: What the caller insists on.
    """
    lines = "\n".join(to_json(tool["function"]).decode() for tool in run.tools)
    instruction = _INSTRUCTION.format(tools=lines, choice=_choice_line(choice)).rstrip()
    messages = _taught([_as_text(message) for message in run.messages], instruction)
    return replace(run, tools=(), tool_choice=None, messages=messages)


def _choice_line(choice: str | Json | None) -> str:
    """What the caller insists on, said to the model. The answer is checked for it."""
    if choice == "required":
        return "\nYou have to call at least one function now."
    if isinstance(choice, dict):
        return f"\nYou have to call the function {choice['function']['name']} now, and no other."
    return ""


def _taught(messages: list[Json], instruction: str) -> list[Json]:
    """Messages with the instruction in their leading system message; tool answers side by side."""
    joined: list[Json] = []
    for message in messages:
        previous = joined[-1] if joined else None
        both = previous is not None and _is_response(previous) and _is_response(message)
        if both and previous is not None:
            joined[-1] = {**previous, "content": f"{previous['content']}\n{message['content']}"}
        else:
            joined.append(message)
    first = joined[0] if joined else None
    if first is None or first["role"] not in {"system", "developer"}:
        return [{"role": "system", "content": instruction}, *joined]
    content = first["content"]
    if isinstance(content, str):
        merged: object = f"{content}\n\n{instruction}"
    else:
        merged = [*cast("list[Json]", content), {"type": "text", "text": instruction}]
    return [{**first, "content": merged}, *joined[1:]]


def _is_response(message: Json) -> bool:
    content = message.get("content")
    return (
        message["role"] == "user"
        and isinstance(content, str)
        and content.startswith("<tool_response>\n")
    )


def _as_text(message: Json) -> Json:
    """One message without tool fields."""
    if message["role"] == "tool":
        text = _plain(message.get("content"))
        return {"role": "user", "content": f"<tool_response>\n{text}\n</tool_response>"}
    calls = message.get("tool_calls")
    if message["role"] != "assistant" or not calls:
        return message
    kept = {name: value for name, value in message.items() if name != "tool_calls"}
    blocks = "\n".join(_block(call["function"]) for call in cast("list[Json]", calls))
    before = _plain(message.get("content"))
    return {**kept, "content": f"{before}\n{blocks}" if before else blocks}


def _plain(content: object) -> str:
    """A message's content as one text."""
    if isinstance(content, str):
        return content
    parts = cast("list[Json]", content or [])
    return "".join(str(part.get("text", "")) for part in parts)


def _block(function: Json) -> str:
    """A past call in the dialect that the instruction teaches."""
    try:
        arguments = from_json(function["arguments"] or "{}")
    except ValueError:
        arguments = None
    lines = [f"<function={function['name']}>"]
    if isinstance(arguments, dict):
        for key, value in cast("Json", arguments).items():
            text = value if isinstance(value, str) else to_json(value).decode()
            lines += [f"<parameter={key}>", text, "</parameter>"]
    inner = "\n".join([*lines, "</function>"])
    return f"<tool_call>\n{inner}\n</tool_call>"
