"""The generation policy of a pool entry, laid on a request."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from serve_app.policies.generation import apply_generation
from serve_app.runs import ReasoningEffort, RunRequest

RUN = RunRequest(
    request_id="r", model="m", target="t", messages=[{"role": "user", "content": "hi"}]
)


def laid_on(
    run: RunRequest,
    *,
    default: int | None = None,
    least: int | None = None,
    budget: int | None = None,
) -> RunRequest:
    return apply_generation(
        run,
        default_max_tokens=default,
        min_max_tokens=least,
        default_thinking_token_budget=budget,
    )


@pytest.mark.clause("GEN-1", "GEN-2")
@pytest.mark.parametrize(
    ("asked", "default", "least", "limit"),
    [
        pytest.param(None, None, None, None, id="nothing"),
        pytest.param(None, 300, None, 300, id="default"),
        pytest.param(None, 300, 100, 300, id="default-above-the-least"),
        pytest.param(None, 300, 300, 300, id="default-is-the-least"),
        pytest.param(None, None, 100, None, id="least-makes-no-limit"),
        pytest.param(50, None, None, 50, id="asked"),
        pytest.param(50, 300, None, 50, id="asked-before-default"),
        pytest.param(50, None, 100, 100, id="raised"),
        pytest.param(1, 300, 100, 100, id="raised-to-the-least-not-to-the-default"),
        pytest.param(100, None, 100, 100, id="just-enough"),
        pytest.param(500, 300, 100, 500, id="larger-stays"),
    ],
)
def test_the_output_limit(
    asked: int | None, default: int | None, least: int | None, limit: int | None
) -> None:
    """The default where the caller gave none; a smaller one is raised, a larger one stays."""
    run = laid_on(replace(RUN, max_tokens=asked), default=default, least=least)
    injected = {"max_tokens"} if asked is None and limit is not None else set[str]()
    assert run == replace(RUN, max_tokens=limit, injected=frozenset(injected))


@pytest.mark.clause("GEN-3")
@pytest.mark.parametrize("default", [0, 512, None])
@pytest.mark.parametrize("asked", [None, 0, 7])
@pytest.mark.parametrize("think", [None, True, False])
@pytest.mark.parametrize("effort", [None, "none", "low", "medium", "high"])
def test_the_thinking_budget(
    think: bool | None, effort: ReasoningEffort | None, asked: int | None, default: int | None
) -> None:
    """The default where the caller gave none and did not forbid thinking; 0 is a budget."""
    run = replace(RUN, think=think, reasoning_effort=effort, thinking_token_budget=asked)
    forbidden = think is False or effort == "none"
    expected = asked if asked is not None or forbidden else default
    injected = {"thinking_token_budget"} if asked is None and expected is not None else set[str]()
    assert laid_on(run, budget=default) == replace(
        run, thinking_token_budget=expected, injected=frozenset(injected)
    )


@pytest.mark.clause("GEN-3")
def test_hiding_the_reasoning_does_not_forbid_it() -> None:
    """`include_reasoning: false` is about what is shown."""
    run = laid_on(replace(RUN, include_reasoning=False), budget=512)
    assert run.thinking_token_budget == 512


def test_the_request_itself_is_not_changed() -> None:
    """A policy gives a new request; the rest of it is the caller's."""
    fields: dict[str, Any] = {"temperature": 0.5, "stop": ("a",), "metadata": {"k": "v"}}
    run = replace(RUN, **fields)
    before = pickle.dumps(run)
    changed = laid_on(run, default=1, least=2, budget=3)
    assert pickle.dumps(run) == before
    injected = frozenset({"max_tokens", "thinking_token_budget"})
    assert changed == replace(run, max_tokens=2, thinking_token_budget=3, injected=injected)
