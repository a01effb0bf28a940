"""Which model goes where, and what the listing shows (clauses ROUTE)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.fakes.upstream import Upstream
from tests.serve_app.ingress.edge import MESSAGES, PROVIDER, Edge, running

ROUTES = [
    {"model": "both", "adapter": PROVIDER, "target": "by-route"},
    {"model": "same-name", "adapter": PROVIDER},
    {"model": "alias", "adapter": "pool", "target": "pooled"},
    {"model": "team/model:7b", "adapter": PROVIDER, "target": "slashed"},
]
CATALOG = [
    {"id": "both", "providers": [{"provider": PROVIDER, "target": "by-pool"}]},
    {"id": "pooled", "providers": [{"provider": PROVIDER, "target": "from-pool"}]},
    {"id": "plain", "providers": [{"provider": PROVIDER}]},
]
LISTED = ["both", "same-name", "alias", "team/model:7b", "pooled", "plain"]


@pytest.fixture
async def routed(upstream: Upstream) -> AsyncGenerator[Edge]:
    """A gateway with routes and a catalog, and no fallback."""
    openai = {"adapter": "", "model_routes": ROUTES}
    async with running(upstream, openai=openai, models=CATALOG) as edge:
        yield edge


async def target_of(edge: Edge, upstream: Upstream, model: str) -> str:
    """The name by which the upstream is asked for a model."""
    response = await edge.client.post(
        "/v1/chat/completions", json={"model": model, "messages": MESSAGES}
    )
    assert response.status_code == 200, response.text
    assert response.json()["model"] == model
    return str(upstream.requests[-1].json["model"])


@pytest.mark.clause("ROUTE-1")
@pytest.mark.parametrize(
    ("model", "target"),
    [
        pytest.param("both", "by-route", id="route-before-pool"),
        pytest.param("same-name", "same-name", id="route-without-target"),
        pytest.param("alias", "from-pool", id="route-to-the-pool"),
        pytest.param("pooled", "from-pool", id="pool"),
        pytest.param("plain", "plain", id="pool-without-target"),
        pytest.param("team/model:7b", "slashed", id="name-with-slash"),
    ],
)
async def test_a_model_is_looked_up_in_routes_and_then_in_the_pool(
    routed: Edge, upstream: Upstream, model: str, target: str
) -> None:
    """`model_routes[]` wins over `models[]`, and the caller sees the name it asked for."""
    assert await target_of(routed, upstream, model) == target


@pytest.mark.clause("ROUTE-2")
@pytest.mark.parametrize(
    ("fallback", "target"), [("", "unheard-of"), ("the-default", "the-default")]
)
async def test_a_model_without_a_route_goes_to_the_fallback(
    upstream: Upstream, fallback: str, target: str
) -> None:
    """The fallback's target is asked for, or the request's own name where it has none."""
    async with running(upstream, openai={"target": fallback}) as edge:
        assert await target_of(edge, upstream, "unheard-of") == target


@pytest.mark.clause("ROUTE-2")
@pytest.mark.parametrize(
    "model", ["nope", "BOTH", " both", "both ", "x" * 5000, "\x00", "모델", "team"]
)
async def test_a_model_without_route_and_fallback_is_not_found(
    routed: Edge, upstream: Upstream, model: str
) -> None:
    """Names are compared exactly; an unknown one is 404 and reaches no upstream."""
    response = await routed.client.post(
        "/v1/chat/completions", json={"model": model, "messages": MESSAGES}
    )
    error = response.json()["error"]
    assert response.status_code == 404
    assert (error["code"], error["param"]) == ("model_not_found", None)
    assert len(error["message"]) < 300
    assert upstream.requests == []


@pytest.mark.clause("ROUTE-2")
async def test_a_fallback_to_the_pool_needs_a_name_from_the_catalog(upstream: Upstream) -> None:
    """With the pool as fallback, a name that the catalog lacks is 404 too."""
    async with running(upstream, openai={"adapter": "pool"}, models=CATALOG) as edge:
        response = await edge.chat("nope")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


@pytest.mark.clause("ROUTE-4")
async def test_models_lists_the_catalog_once_each(routed: Edge) -> None:
    """The list has each name of routes and pool once, in the configuration's order."""
    response = await routed.client.get("/v1/models")
    listed = response.json()
    assert response.headers["content-type"] == "application/json"
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == LISTED
    assert {tuple(sorted(model)) for model in listed["data"]} == {
        ("created", "id", "object", "owned_by")
    }
    assert {model["object"] for model in listed["data"]} == {"model"}


@pytest.mark.clause("ROUTE-4")
@pytest.mark.parametrize("model", LISTED)
async def test_one_model_can_be_retrieved(routed: Edge, model: str) -> None:
    """Each listed name can be retrieved, also one with a slash in it."""
    listed = (await routed.client.get("/v1/models")).json()["data"]
    response = await routed.client.get(f"/v1/models/{model}")
    assert response.json() == next(one for one in listed if one["id"] == model)


@pytest.mark.clause("ROUTE-4")
@pytest.mark.parametrize(
    "path", ["nope", "team", "team%2Fmodel:7b%2F", "both/", "%00", "%ff", "x" * 3000]
)
async def test_an_unknown_model_cannot_be_retrieved(routed: Edge, path: str) -> None:
    """What is not listed is 404 `model_not_found`."""
    response = await routed.client.get(f"/v1/models/{path}")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


@pytest.mark.clause("ROUTE-4")
async def test_an_escaped_slash_in_a_model_name_is_a_slash(routed: Edge) -> None:
    """Clients that escape the name's slash, as the official one does, find it too."""
    response = await routed.client.get("/v1/models/team%2Fmodel:7b")
    assert response.json()["id"] == "team/model:7b"


@pytest.mark.clause("ROUTE-5")
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_completions_names_the_endpoints_to_use(routed: Edge, method: str) -> None:
    """The legacy endpoint is 404 in the usual form, and tells where to go instead."""
    response = await routed.client.request(
        method, "/v1/completions", json={"model": "both", "prompt": "x"}
    )
    error = response.json()["error"]
    assert response.status_code == 404
    assert (error["type"], error["code"]) == ("invalid_request_error", "not_found")
    assert "/v1/chat/completions" in error["message"]
    assert "/v1/responses" in error["message"]


@pytest.mark.parametrize("missing", [{}, {"fake": "starting: 1 PENDING"}], ids=["ready", "not"])
async def test_readyz_tells_what_is_missing(edge: Edge, missing: dict[str, str]) -> None:
    """200 once all can be served; until then 503 with the reason of each provider."""
    edge.readiness.said = missing
    response = await edge.client.get("/readyz")
    expected = (503, {"status": "not ready", "missing": missing}) if missing else (200, None)
    assert response.status_code == expected[0]
    assert response.json() == (expected[1] or {"status": "ready"})
    assert (response.headers.get("retry-after") is not None) == bool(missing)


async def test_healthz_answers_while_nothing_else_can(edge: Edge) -> None:
    """The process's own health does not depend on providers."""
    edge.readiness.said = {"fake": "down"}
    edge.slots.count = 0
    response = await edge.client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
