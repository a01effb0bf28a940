"""Every combination of what can be said about thinking, to the exact body or the exact error.

What has to come out is worked out here from the contract's clauses, in their order, and with
none of the product's code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from deployments import providers
from serve_app.errors import Code, GatewayError, UnsupportedThinkError
from serve_app.policies.order import can_serve, lower, prepare
from serve_app.runs import GenerationPolicy, Json, ReasoningEffort, RunRequest, ThinkControl
from serve_app.upstream.request_body import chat_body
from tests.serve_app.wire.chat_bodies import body, refused

RUN = RunRequest(
    request_id="r", model="m", target="t", messages=[{"role": "user", "content": "hi"}]
)
LEAST: Json = {
    "model": "t",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
    "stream_options": {"include_usage": True},
}
BUDGETED = GenerationPolicy(default_thinking_token_budget=2048)

#: Name of a kind of provider → its type, and what its entry says in `takes_think_fields`.
KINDS = {
    "vllm": ("vllm", True),
    "vllm_mlx": ("vllm_mlx", True),
    "lemonade": ("lemonade", True),
    "ollama": ("ollama", True),
    "openai_compat": ("openai_compat", True),
    "llama_cpp": ("llama_cpp", True),
    "openai_compat-spared": ("openai_compat", False),
}


@dataclass(frozen=True)
class Said:
    """What a caller says about thinking, and what the configuration does."""

    think: bool | None
    effort: ReasoningEffort | None
    budget: int | None
    strict: bool
    budgeted: bool

    @property
    def contradicts_itself(self) -> bool:
        """THINK-4: judged on the caller's own fields only."""
        off = self.think is False or self.effort == "none"
        if off and self.budget is not None:
            return True
        if self.think is False:
            return self.effort in {"low", "medium", "high"}
        return self.think is True and self.effort == "none"


def expected(said: Said, kind: str) -> Json | str:
    """The think-related part of the body; or the field that the refusal names."""
    think, effort, budget = said.think, said.effort, said.budget
    put_in: set[str] = set()
    # STRICT-1
    if said.strict and think is not True:
        if think is None:
            put_in.add("think")
        think, effort, budget = False, None, None
    # GEN-3
    if said.budgeted and budget is None and think is not False and effort != "none":
        budget = 2048
        put_in.add("thinking_token_budget")
    # THINK-9, and the decision about a generic provider that is spared
    if kind in {"ollama", "openai_compat", "llama_cpp", "openai_compat-spared"}:
        fields = {"think": think, "reasoning_effort": effort, "thinking_token_budget": budget}
        spared = put_in if kind == "openai_compat-spared" else set[str]()
        return {n: v for n, v in fields.items() if v is not None and n not in spared}
    # THINK-6, THINK-7, THINK-8
    if effort in {"low", "medium", "high"}:
        return "reasoning_effort"
    if think is False or effort == "none":
        if kind == "vllm_mlx":
            return "think" if think is False else "reasoning_effort"
        return {"chat_template_kwargs": {"enable_thinking": False}}
    if budget is not None:
        wanted = {"enable_thinking": True, "thinking_token_budget": budget}
        return {"chat_template_kwargs": wanted}
    return {"chat_template_kwargs": {"enable_thinking": True}} if think else {}


def refusal(error: UnsupportedThinkError, type_name: str) -> str:
    """The field that a refusal names; it names the provider's type too."""
    assert (error.status, error.code) == (400, Code.UNSUPPORTED_THINK_CONTROL)
    assert "unsupported think control" in error.message
    assert f"'{type_name}'" in error.message
    assert f"'{error.param}'" in error.message
    return str(error.param)


def outcome(said: Said, kind: str) -> Json | str:
    """What the product makes of it."""
    type_name, takes = KINDS[kind]
    run = replace(
        RUN,
        think=said.think,
        reasoning_effort=said.effort,
        thinking_token_budget=said.budget,
    )
    facts = providers.load(type_name).facts
    policy = BUDGETED if said.budgeted else GenerationPolicy()
    try:
        ready = prepare(
            run, strict=said.strict, policy=policy, facts=facts, takes_think_fields=takes
        )
    except UnsupportedThinkError as error:
        return refusal(error, type_name)
    sent: Json = json.loads(chat_body(ready, facts))
    assert {name: sent.pop(name) for name in LEAST} == LEAST
    return sent


COMBINATIONS = [
    Said(*row)
    for row in product(
        (None, True, False),
        (None, "none", "low", "medium", "high"),
        (None, 0, 512),
        (False, True),
        (False, True),
    )
]
CONSISTENT = [said for said in COMBINATIONS if not said.contradicts_itself]


def named(value: object) -> str | None:
    """A short id of a combination."""
    if not isinstance(value, Said):
        return None
    strict, budgeted = "strict" * value.strict, "budgeted" * value.budgeted
    words = (f"think={value.think}", value.effort, value.budget, strict, budgeted)
    return "-".join(str(word) for word in words if word not in {None, ""})


@pytest.mark.clause(
    "THINK-1", "THINK-2", "THINK-6", "THINK-7", "THINK-8", "THINK-9", "THINK-10", "STRICT-1"
)
@pytest.mark.clause("GEN-3")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said", CONSISTENT, ids=named)
def test_what_is_said_becomes_exactly_this(said: Said, kind: str) -> None:
    """The whole body, so that nothing else about thinking is in it, or the field refused."""
    assert outcome(said, kind) == expected(said, kind)


@pytest.mark.clause("THINK-4")
@pytest.mark.parametrize("said", [s for s in COMBINATIONS if s.contradicts_itself], ids=named)
def test_a_contradiction_never_gets_this_far(said: Said) -> None:
    """It is refused as it was sent, before strict output could lower it to something sound."""
    fields: dict[str, Any] = {
        "think": said.think,
        "reasoning_effort": said.effort,
        "thinking_token_budget": said.budget,
    }
    _, code = refused(body(**fields))
    assert code is Code.CONFLICTING_PARAMETERS


def test_the_matrix_is_what_it_should_be() -> None:
    """All combinations are there, and each kind of outcome is among them."""
    assert (len(COMBINATIONS), len(CONSISTENT)) == (180, 108)
    outcomes = [expected(said, kind) for said in CONSISTENT for kind in KINDS]
    refusals = [one for one in outcomes if isinstance(one, str)]
    assert set(refusals) == {"think", "reasoning_effort"}
    assert {} in outcomes


@pytest.mark.clause("THINK-5")
@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_showing_is_not_controlling(kind: str, shown: bool) -> None:
    """`include_reasoning` stays for the answer; upstream it goes only where all fields do."""
    type_name, takes = KINDS[kind]
    facts = providers.load(type_name).facts
    ready = prepare(
        replace(RUN, include_reasoning=shown),
        strict=False,
        policy=GenerationPolicy(),
        facts=facts,
        takes_think_fields=takes,
    )
    assert ready.include_reasoning is shown
    sent = json.loads(chat_body(ready, facts))
    told = {} if facts.think else {"include_reasoning": shown}
    assert sent == LEAST | told


# The choice among a pool's members


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said", CONSISTENT, ids=named)
def test_who_can_serve_is_who_would_not_refuse(said: Said, kind: str) -> None:
    """What a pool is asked before the choice agrees with what happens after it."""
    run = replace(
        RUN,
        think=said.think,
        reasoning_effort=said.effort,
        thinking_token_budget=said.budget,
    )
    policy = BUDGETED if said.budgeted else GenerationPolicy()
    lowered = lower(run, strict=said.strict, policy=policy)
    facts = providers.load(KINDS[kind][0]).facts
    assert can_serve(lowered, facts) is not isinstance(expected(said, kind), str)


# What the matrix does not show


@pytest.mark.clause("GEN-1", "GEN-2")
def test_output_limits_are_the_same_with_and_without_strict_output() -> None:
    """Strict output is about thinking; limits come from the route's policy all the same."""
    policy = GenerationPolicy(default_max_tokens=300, min_max_tokens=100)
    for strict in (False, True):
        assert lower(RUN, strict=strict, policy=policy).max_tokens == 300
        assert lower(replace(RUN, max_tokens=5), strict=strict, policy=policy).max_tokens == 100


@pytest.mark.clause("THINK-10")
def test_a_refusal_tells_that_strict_output_asked_for_it() -> None:
    """The caller did not send the field at fault, so it is told who did, and what helps."""
    facts = providers.load("vllm_mlx").facts
    with pytest.raises(UnsupportedThinkError) as caught:
        prepare(RUN, strict=True, policy=GenerationPolicy(), facts=facts)
    assert "Strict output" in caught.value.message
    assert "'think': true" in caught.value.message


@pytest.mark.clause("THINK-10")
def test_a_refusal_tells_that_the_policy_asked_for_it() -> None:
    """Likewise where the generation policy put the field in."""
    facts = replace(providers.load("vllm").facts, think=ThinkControl())
    with pytest.raises(UnsupportedThinkError, match="configuration put that field in") as caught:
        prepare(RUN, strict=False, policy=BUDGETED, facts=facts)
    assert caught.value.param == "thinking_token_budget"


def test_the_callers_request_is_not_changed() -> None:
    """Policies give new requests: a repeat on another provider begins with the same one."""
    run = replace(RUN, think=True, thinking_token_budget=5)
    before = repr(run)
    facts = providers.load("vllm").facts
    first = prepare(run, strict=True, policy=BUDGETED, facts=facts)
    again = prepare(run, strict=True, policy=BUDGETED, facts=facts)
    assert repr(run) == before
    assert first == again
    assert facts == providers.load("vllm").facts


def test_a_refusal_is_a_gateway_error_about_the_request() -> None:
    """Nothing of it is the upstream's fault, and a repeat cannot help."""
    error = UnsupportedThinkError("x", param="think")
    assert isinstance(error, GatewayError)
    assert (error.source, error.status) == ("caller", 400)
