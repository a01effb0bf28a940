"""Think control: wishes about thinking in the words of one provider (THINK-6 to THINK-10)."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from serve_app.errors import UnsupportedThinkError
from serve_app.runs import Json, ProviderFacts, RunRequest, ThinkControl

#: The fields by which a request speaks of thinking itself, not of showing it.
_FIELDS = ("think", "reasoning_effort", "thinking_token_budget")


def control(
    request: RunRequest, facts: ProviderFacts, *, takes_think_fields: bool = True
) -> RunRequest:
    """Put the provider's own fields in the place of the request's.

    A provider without a table gets the request's fields as they are, and what it says to them
    is its error. Where it takes no think fields that the caller did not send, it is spared those
    that a policy put in.

    Args:
        request: The request after the policies that are the same for every provider.
        facts: The provider that is going to run it.
        takes_think_fields: What the provider's entry in the configuration says.

    Raises:
        UnsupportedThinkError: The provider has no field for what the request wants.
    """
    if facts.think is None:
        return request if takes_think_fields else _as_the_caller_sent(request)
    extra = _wanted(request, facts.type, facts.think)
    return replace(
        request,
        think=None,
        reasoning_effort=None,
        thinking_token_budget=None,
        extra=_merged(request.extra, extra),
    )


def _as_the_caller_sent(request: RunRequest) -> RunRequest:
    """The request without think fields that a policy put in."""
    spared = {name: None for name in _FIELDS if name in request.injected}
    return replace(request, **spared) if spared else request


def _wanted(request: RunRequest, kind: str, table: ThinkControl) -> Json:
    """The provider's fields for a request; nothing where the provider's default stays."""
    effort, budget = request.reasoning_effort, request.thinking_token_budget
    if effort not in {None, "none"} and not table.takes_effort:
        raise _unsupported(request, kind, "reasoning_effort", f"takes no effort ('{effort}')")
    fields: Json = {}
    if request.think is False or effort == "none":
        if table.off is None:
            field = "think" if request.think is False else "reasoning_effort"
            raise _unsupported(request, kind, field, "cannot switch thinking off")
        return table.off
    if request.think is True or budget is not None:
        if table.on is None:
            field = "think" if request.think is True else "thinking_token_budget"
            raise _unsupported(request, kind, field, "cannot switch thinking on")
        fields = table.on
    if effort is not None:
        fields = _merged(fields, {"reasoning_effort": effort})
    if budget is not None:
        if not table.budget:
            raise _unsupported(request, kind, "thinking_token_budget", "takes no budget")
        fields = _merged(fields, _at(table.budget, budget))
    return fields


def _at(path: tuple[str, ...], value: object) -> Json:
    """An object that holds a value at a path."""
    for name in reversed(path[1:]):
        value = {name: value}
    return {path[0]: value}


def _merged(one: Json, other: Json) -> Json:
    """Both objects in one, objects in them too; neither is changed."""
    merged = dict(one)
    for name, value in other.items():
        mine: object = merged.get(name)
        if isinstance(mine, dict) and isinstance(value, dict):
            merged[name] = _merged(cast("Json", mine), cast("Json", value))
        else:
            merged[name] = value
    return merged


def _unsupported(request: RunRequest, kind: str, field: str, reason: str) -> UnsupportedThinkError:
    """The error that names what cannot be done, and whose wish it was."""
    source = ""
    if field in request.injected:
        source = " The gateway's own configuration put that field in."
        if field == "think":
            source = " Strict output asks for it; a request with 'think': true is not affected."
    message = f"unsupported think control: a provider of type '{kind}' {reason}; see '{field}'."
    return UnsupportedThinkError(message + source, param=field)
