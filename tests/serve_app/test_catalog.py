"""Routing: which provider, under which name, for a `model`."""

from __future__ import annotations

import pytest

from serve_app import config
from serve_app.catalog import Catalog, GenerationPolicy, Member
from serve_app.errors import Code, NotFoundError

PROVIDERS = """
providers:
  - {name: gpu, type: vllm, url: "http://gpu/v1"}
  - {name: a, type: openai_compat, url: "http://a/v1"}
  - {name: b, type: openai_compat, url: "http://b/v1"}
"""
ROUTES = """
openai:
  model_routes:
    - {model: coder, adapter: gpu, target: qwen-coder}
    - {model: plain, adapter: vllm}
    - {model: both, adapter: a, target: from-route}
    - {model: alias, adapter: pool, target: shared}
models:
  - {id: shared, providers: [{provider: gpu}, {provider: b, target: other}]}
  - {id: both, providers: [{provider: b}]}
"""


def catalog(text: str) -> Catalog:
    return Catalog(config.load(PROVIDERS + text, environ={}))


def members(text: str, model: str) -> list[tuple[str, str]]:
    route = catalog(text).resolve(model)
    assert route.model == model
    return [(member.provider, member.target) for member in route.members]


@pytest.mark.clause("ROUTE-1")
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param("coder", [("gpu", "qwen-coder")], id="route-with-target"),
        pytest.param("plain", [("gpu", "plain")], id="route-by-type-without-target"),
        pytest.param("both", [("a", "from-route")], id="route-before-pool"),
        pytest.param("shared", [("gpu", "shared"), ("b", "other")], id="pool"),
        pytest.param("alias", [("gpu", "shared"), ("b", "other")], id="route-to-the-pool"),
    ],
)
def test_a_name_is_looked_up_in_the_routes_and_then_in_the_pool(
    model: str, expected: list[tuple[str, str]]
) -> None:
    """`model_routes[]` wins; a target left out is the model's own name."""
    assert members(ROUTES, model) == expected


@pytest.mark.clause("ROUTE-2")
@pytest.mark.parametrize(
    ("fallback", "expected"),
    [
        pytest.param("{adapter: a}", ("a", "new"), id="own-name"),
        pytest.param("{adapter: a, target: fixed}", ("a", "fixed"), id="target"),
        pytest.param("{adapter: vllm}", ("gpu", "new"), id="by-type"),
    ],
)
def test_an_unknown_name_goes_to_the_fallback(fallback: str, expected: tuple[str, str]) -> None:
    """The target is `openai.target`, or the request's model where that is empty."""
    assert members(f"openai: {fallback}", "new") == [expected]


@pytest.mark.clause("ROUTE-2")
def test_a_fallback_to_the_pool_serves_its_target() -> None:
    """The pool may be the fallback adapter: any name is then served by one catalog entry."""
    text = "models: [{id: m, providers: [{provider: b}]}]\nopenai: {adapter: pool, target: m}"
    assert members(text, "anything") == [("b", "m")]


@pytest.mark.clause("ROUTE-2")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="no-fallback"),
        pytest.param(
            "models: [{id: m, providers: [{provider: b}]}]\nopenai: {adapter: pool}",
            id="pool-that-has-no-such-model",
        ),
    ],
)
@pytest.mark.parametrize("model", ["nobody", "M", " m", "", "모델", "x" * 10_000])
def test_a_name_that_nothing_serves_is_404(text: str, model: str) -> None:
    """404 `model_not_found`; the name is compared exactly, and shown in part if it is long."""
    with pytest.raises(NotFoundError) as caught:
        catalog(text).resolve(model)
    assert (caught.value.status, caught.value.code) == (404, Code.MODEL_NOT_FOUND)
    assert len(caught.value.message) < 300


@pytest.mark.clause("ROUTE-4")
def test_the_list_shows_routes_and_pool_once_each_in_order() -> None:
    """What the catalog exposes, as the file has it; the fallback adds no name."""
    assert catalog(ROUTES).models() == ["coder", "plain", "both", "alias", "shared"]
    assert catalog("openai: {adapter: a}").models() == []


def test_a_pool_entry_brings_its_policy_also_by_an_alias() -> None:
    """The generation policy belongs to the entry; a plain route has none."""
    text = """
openai: {model_routes: [{model: alias, adapter: pool, target: m}, {model: r, adapter: a}]}
models:
  - id: m
    providers: [{provider: b}]
    default_max_tokens: 300
    min_max_tokens: 100
    default_thinking_token_budget: 0
"""
    routes = catalog(text)
    expected = GenerationPolicy(300, 100, 0)
    assert [routes.resolve(name).policy for name in ("m", "alias")] == [expected, expected]
    assert routes.resolve("r").policy == GenerationPolicy()
    assert routes.resolve("r").members == (Member("a", "r"),)


@pytest.mark.parametrize(
    "openai",
    [
        pytest.param({"adapter": "nobody"}, id="fallback"),
        pytest.param({"model_routes": [{"model": "m", "adapter": "nobody"}]}, id="route"),
        pytest.param({"adapter": "openai_compat"}, id="type-of-two"),
    ],
)
def test_a_provider_that_is_not_there_fails_at_once(openai: dict[str, object]) -> None:
    """A catalog is not made with a route that leads nowhere: not at some later request."""
    good = config.load(PROVIDERS, environ={})
    settings = good.model_copy(update={"openai": config.OpenAI.model_validate(openai)})
    with pytest.raises(LookupError):
        Catalog(settings)
