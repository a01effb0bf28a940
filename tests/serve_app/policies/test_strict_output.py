"""Strict output, laid on a request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serve_app.policies.strict_output import apply_strict_output
from serve_app.runs import ReasoningEffort, RunRequest

RUN = RunRequest(
    request_id="r", model="m", target="t", messages=[{"role": "user", "content": "hi"}]
)


@pytest.mark.clause("STRICT-1")
@pytest.mark.parametrize("think", [None, False])
@pytest.mark.parametrize("effort", [None, "none", "low", "medium", "high"])
@pytest.mark.parametrize("budget", [None, 0, 512])
def test_what_does_not_ask_for_thinking_runs_without(
    think: bool | None, effort: ReasoningEffort | None, budget: int | None
) -> None:
    """`think: false`, and neither budget nor effort; whose wish it was is kept."""
    run = replace(RUN, think=think, reasoning_effort=effort, thinking_token_budget=budget)
    injected = frozenset[str]() if think is False else frozenset({"think"})
    assert apply_strict_output(run) == replace(RUN, think=False, injected=injected)


@pytest.mark.clause("STRICT-1")
@pytest.mark.parametrize("effort", [None, "high"])
@pytest.mark.parametrize("budget", [None, 512])
def test_an_explicit_wish_to_think_stays(
    effort: ReasoningEffort | None, budget: int | None
) -> None:
    """`think: true` is explicit, and what belongs to it stays too."""
    run = replace(RUN, think=True, reasoning_effort=effort, thinking_token_budget=budget)
    assert apply_strict_output(run) == run


def test_what_another_policy_put_in_is_remembered() -> None:
    """The names of put-in fields add up."""
    run = replace(RUN, max_tokens=5, injected=frozenset({"max_tokens"}))
    assert apply_strict_output(run).injected == {"max_tokens", "think"}
