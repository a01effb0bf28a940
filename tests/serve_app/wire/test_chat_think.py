"""Contradictions among `think`, `reasoning_effort` and `thinking_token_budget`."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from serve_app.errors import Code
from tests.serve_app.wire.chat_bodies import body, refused, taken

#: The clause, written out: what the two fields are → the field that is named, or None.
#: `effort` stands for low, medium and high; `budget` for any budget, 0 too.
RULES: dict[tuple[bool | None, str, bool], str | None] = {
    # think, effort, with a budget
    (None, "absent", False): None,
    (None, "absent", True): None,
    (None, "none", False): None,
    (None, "none", True): "thinking_token_budget",
    (None, "effort", False): None,
    (None, "effort", True): None,
    (True, "absent", False): None,
    (True, "absent", True): None,
    (True, "none", False): "reasoning_effort",
    (True, "none", True): "either",
    (True, "effort", False): None,
    (True, "effort", True): None,
    (False, "absent", False): None,
    (False, "absent", True): "thinking_token_budget",
    (False, "none", False): None,
    (False, "none", True): "thinking_token_budget",
    (False, "effort", False): "reasoning_effort",
    (False, "effort", True): "either",
}

EITHER = {"reasoning_effort", "thinking_token_budget"}
THINKS = (None, True, False)
EFFORTS = (None, "none", "low", "medium", "high")
BUDGETS = (None, 0, 1, 4096, 2**31 - 1)
MATRIX = list(product(THINKS, EFFORTS, BUDGETS))


def rule(think: bool | None, effort: str | None, budget: int | None) -> str | None:
    kinds = {None: "absent", "none": "none"}
    return RULES[think, kinds.get(effort, "effort"), budget is not None]


@pytest.mark.clause("THINK-4", "THINK-2", "THINK-3")
@pytest.mark.parametrize(("think", "effort", "budget"), MATRIX)
def test_every_combination_of_think_control(
    think: bool | None, effort: str | None, budget: int | None
) -> None:
    """Contradictions are 400 and name a field of the two; all else is taken as it is."""
    fields: dict[str, Any] = {
        "think": think,
        "reasoning_effort": effort,
        "thinking_token_budget": budget,
    }
    at_fault = rule(think, effort, budget)
    if at_fault is None:
        request = taken(body(**fields))
        assert {name: getattr(request, name) for name in fields} == fields
        return
    param, code = refused(body(**fields))
    assert code is Code.CONFLICTING_PARAMETERS
    assert param in (EITHER if at_fault == "either" else {at_fault})


@pytest.mark.clause("THINK-4")
def test_include_reasoning_contradicts_nothing() -> None:
    """Hiding the reasoning is not forbidding it."""
    request = taken(body(think=True, include_reasoning=False, thinking_token_budget=5))
    assert request.include_reasoning is False


@pytest.mark.clause("THINK-4")
def test_the_matrix_has_both_outcomes() -> None:
    """The table above is not empty on either side."""
    outcomes = [rule(*row) is None for row in MATRIX]
    assert (len(MATRIX), outcomes.count(False)) == (75, 32)
