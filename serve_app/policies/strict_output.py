"""Strict output, laid on a request (clause STRICT-1)."""

from __future__ import annotations

from dataclasses import replace

from serve_app.runs import RunRequest


def apply_strict_output(request: RunRequest) -> RunRequest:
    """Let a request that does not ask for thinking by `think: true` run without it.

    Budget and effort go too: they would contradict it.
    """
    if request.think is True:
        return request
    # A caller's own `think: false` stays its own; any other is the policy's.
    injected = request.injected if request.think is False else request.injected | {"think"}
    return replace(
        request, think=False, reasoning_effort=None, thinking_token_budget=None, injected=injected
    )
