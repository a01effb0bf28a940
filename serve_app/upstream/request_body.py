"""A run as the body that goes to one kind of upstream."""

from __future__ import annotations

from pydantic_core import to_json

from serve_app.runs import Json, ProviderFacts, RunRequest


def chat_body(run: RunRequest, facts: ProviderFacts) -> bytes:
    """The JSON body of an upstream chat call, always a streaming one.

    Upstreams answer whole requests worse than streams: some hold a cancelled one for many
    seconds, and none shows that it is alive. So every call streams, and is collected here for a
    caller who does not.

    `metadata`, `workspace`, `store`, `parallel_tool_calls` and the caller's `stream_options`
    are the gateway's own business and never go out. The four fields about thinking go out only
    to a provider without a table of its own for them; for one that has it, what the table says
    is in the run's `extra`.
    """
    body: Json = {
        "model": run.target,
        "messages": [_message(message) for message in run.messages],
        "stream": True,
    }
    if facts.takes_stream_options:
        body["stream_options"] = {"include_usage": True}
    optional: Json = {
        facts.max_tokens_field: run.max_tokens,
        "temperature": run.temperature,
        "top_p": run.top_p,
        "presence_penalty": run.presence_penalty,
        "frequency_penalty": run.frequency_penalty,
        "seed": run.seed,
        "stop": list(run.stop) or None,
        "response_format": run.response_format,
        "tools": [_tool(tool) for tool in run.tools] or None,
        "tool_choice": _tool_choice(run),
    }
    if facts.takes_think_fields and facts.think is None:
        optional |= {
            "think": run.think,
            "reasoning_effort": run.reasoning_effort,
            "thinking_token_budget": run.thinking_token_budget,
            "include_reasoning": run.include_reasoning,
        }
    body.update((name, value) for name, value in optional.items() if value is not None)
    body.update(run.extra)
    return to_json(body)


def _message(message: Json) -> Json:
    """A message less its nulls. `content` stays: an assistant's null is part of its shape."""
    if None not in message.values():
        return message
    return {
        name: value for name, value in message.items() if value is not None or name == "content"
    }


def _tool(tool: Json) -> Json:
    """A tool less the nulls of its function, at which some servers stop."""
    function: Json = tool["function"]
    said = {name: value for name, value in function.items() if value is not None}
    return {**tool, "function": said}


def _tool_choice(run: RunRequest) -> str | Json | None:
    """`auto` is every server's default, and some refuse it when it is said."""
    if not run.tools or run.tool_choice == "auto":
        return None
    return run.tool_choice
