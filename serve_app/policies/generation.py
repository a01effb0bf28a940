"""The generation policy of a `models[]` entry, laid on a request (clauses GEN)."""

from __future__ import annotations

from dataclasses import replace

from serve_app.runs import RunRequest


def apply_generation(
    request: RunRequest,
    *,
    default_max_tokens: int | None,
    min_max_tokens: int | None,
    default_thinking_token_budget: int | None,
) -> RunRequest:
    """Put in what the caller left out, and raise a limit that is too small.

    A budget is not put in where thinking is forbidden, by the caller or by strict output, which
    comes before.
    """
    limit = request.max_tokens if request.max_tokens is not None else default_max_tokens
    if limit is not None and min_max_tokens is not None:
        limit = max(limit, min_max_tokens)
    budget = request.thinking_token_budget
    forbidden = request.think is False or request.reasoning_effort == "none"
    if budget is None and not forbidden:
        budget = default_thinking_token_budget
    if limit == request.max_tokens and budget == request.thinking_token_budget:
        return request
    before = {
        "max_tokens": request.max_tokens,
        "thinking_token_budget": request.thinking_token_budget,
    }
    after = {"max_tokens": limit, "thinking_token_budget": budget}
    put_in = {name for name in after if before[name] is None and after[name] is not None}
    return replace(
        request,
        max_tokens=limit,
        thinking_token_budget=budget,
        injected=request.injected | put_in,
    )
