"""Think control: what a provider's table may say, beyond the tables that are shipped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from serve_app.errors import UnsupportedThinkError
from serve_app.policies.think import control
from serve_app.runs import Json, ProviderFacts, RunRequest, ThinkControl

RUN = RunRequest(
    request_id="r", model="m", target="t", messages=[{"role": "user", "content": "hi"}]
)
FULL = ThinkControl(
    off={"reasoning": {"on": False}},
    on={"reasoning": {"on": True}},
    budget=("reasoning", "limits", "tokens"),
    takes_effort=True,
)


def controlled(table: ThinkControl | None, **fields: Any) -> RunRequest:
    return control(replace(RUN, **fields), ProviderFacts(type="made_up", think=table))


@pytest.mark.parametrize(
    ("fields", "extra"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({"think": False}, {"reasoning": {"on": False}}, id="off"),
        pytest.param({"reasoning_effort": "none"}, {"reasoning": {"on": False}}, id="none"),
        pytest.param({"think": True}, {"reasoning": {"on": True}}, id="on"),
        pytest.param(
            {"thinking_token_budget": 0},
            {"reasoning": {"on": True, "limits": {"tokens": 0}}},
            id="budget",
        ),
        pytest.param({"reasoning_effort": "low"}, {"reasoning_effort": "low"}, id="effort"),
        pytest.param(
            {"reasoning_effort": "high", "thinking_token_budget": 7, "think": True},
            {"reasoning_effort": "high", "reasoning": {"on": True, "limits": {"tokens": 7}}},
            id="all",
        ),
    ],
)
def test_a_table_is_data(fields: Json, extra: Json) -> None:
    """Any body can be said: nested fields are put together, and the request's own are gone."""
    assert controlled(FULL, **fields) == replace(RUN, extra=extra)
    assert controlled(FULL, **fields) == replace(RUN, extra=extra), "the table has not changed"


@pytest.mark.clause("THINK-10")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"think": False}, "think"),
        ({"reasoning_effort": "none"}, "reasoning_effort"),
        ({"think": True}, "think"),
        ({"thinking_token_budget": 5}, "thinking_token_budget"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"think": True, "reasoning_effort": "low"}, "reasoning_effort"),
        ({"think": True, "thinking_token_budget": 5}, "think"),
    ],
)
def test_what_a_table_has_no_field_for_is_refused(fields: Json, param: str) -> None:
    """An empty table can do nothing, and says nothing quietly."""
    with pytest.raises(UnsupportedThinkError) as caught:
        controlled(ThinkControl(), **fields)
    assert caught.value.param == param
    assert caught.value.message.startswith("unsupported think control: a provider of type 'made_up")


def test_a_budget_needs_a_field_of_its_own() -> None:
    """A table may switch thinking on and know no budget."""
    table = replace(FULL, budget=())
    with pytest.raises(UnsupportedThinkError, match="takes no budget"):
        controlled(table, thinking_token_budget=5)


def test_what_was_put_in_before_is_kept() -> None:
    """Fields of another policy stay, those inside the same object too."""
    run = controlled(FULL, think=True, extra={"reasoning": {"who": "me"}, "top_k": 5})
    assert run.extra == {"reasoning": {"who": "me", "on": True}, "top_k": 5}


@pytest.mark.clause("THINK-9")
def test_without_a_table_nothing_changes() -> None:
    """The request is the same one."""
    fields: dict[str, Any] = {"think": True, "reasoning_effort": "high"}
    assert controlled(None, **fields) == replace(RUN, **fields)


@pytest.mark.clause("THINK-9")
def test_a_spared_provider_gets_what_the_caller_sent() -> None:
    """Only put-in think fields are left out; a put-in output limit is no think field."""
    run = replace(
        RUN,
        think=False,
        max_tokens=5,
        thinking_token_budget=6,
        injected=frozenset({"thinking_token_budget", "max_tokens"}),
    )
    facts = ProviderFacts(type="made_up")
    spared = control(run, facts, takes_think_fields=False)
    assert spared == replace(run, thinking_token_budget=None)
    assert control(spared, facts, takes_think_fields=False) == spared
