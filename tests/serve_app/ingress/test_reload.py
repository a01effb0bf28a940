"""A configuration that changes under the running gateway."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from serve_app.ingress import reload
from serve_app.ingress.reload import ConfigFile, take_over
from tests.fakes.sse import DONE
from tests.fakes.upstream import Hang, Head, Upstream, text
from tests.serve_app.ingress.edge import (
    MESSAGES,
    PROVIDER,
    Edge,
    Json,
    body,
    running,
    settings_text,
    until,
)

NAME = "edge.yaml"


def lines(records: list[logging.LogRecord]) -> list[tuple[int, str]]:
    """Level and text of what was said about the configuration."""
    said = [r for r in records if r.name == "ray.serve.edge" and NAME in r.getMessage()]
    return [(record.levelno, record.getMessage()) for record in said]


def changed(upstream: Upstream, openai: Json, models: list[Json] | None = None) -> str:
    """A new text with another `openai:` section."""
    return settings_text(openai, models, upstream.url)


async def status_of(edge: Edge, model: str = "script:hello", key: str = "") -> int:
    """The status of a chat call."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    asked = {"model": model, "messages": MESSAGES}
    response = await edge.client.post("/v1/chat/completions", json=asked, headers=headers)
    return response.status_code


async def test_routes_change(edge: Edge, upstream: Upstream) -> None:
    """New routes and catalog are in force from the next request on, in the listing too."""
    route = {"model": "new", "adapter": PROVIDER, "target": "renamed"}
    entry = {"id": "pooled", "providers": [{"provider": PROVIDER}]}
    text = changed(upstream, {"adapter": "", "model_routes": [route]}, [entry])
    assert take_over(edge.gateway, text, NAME)
    listed = (await edge.client.get("/v1/models")).json()["data"]
    assert [model["id"] for model in listed] == ["new", "pooled"]
    assert await status_of(edge, "new") == 200
    assert upstream.requests[-1].json["model"] == "renamed"
    assert await status_of(edge, "script:hello") == 404


@pytest.mark.clause("AUTH-1", "AUTH-2")
async def test_the_token_changes(edge: Edge, upstream: Upstream) -> None:
    """A token is asked for at once, an old one is worth nothing, and none is asked for again."""
    take_over(edge.gateway, changed(upstream, {"bearer_token": "first"}), NAME)
    assert await status_of(edge) == 401
    assert await status_of(edge, key="first") == 200
    take_over(edge.gateway, changed(upstream, {"bearer_token": "second"}), NAME)
    assert await status_of(edge, key="first") == 401
    assert await status_of(edge, key="second") == 200
    take_over(edge.gateway, changed(upstream, {}), NAME)
    assert await status_of(edge) == 200


async def test_limits_change(edge: Edge, upstream: Upstream) -> None:
    """Body size and time limits are those of the newest text."""
    large = json.dumps(body()).encode() + b" " * 2**20
    assert (await edge.client.post("/v1/chat/completions", content=large)).status_code == 200
    limits = {"limits": {"body_mib": 1}, "timeouts": {"first_token_s": 0.2}}
    take_over(edge.gateway, changed(upstream, limits), NAME)
    assert (await edge.client.post("/v1/chat/completions", content=large)).status_code == 413
    assert (await edge.chat("hang_before_headers")).status_code == 504


@pytest.mark.clause("AUTH-3")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("openai: {bearer_tokn: s3cret}", "bearer_tok", id="unknown-key"),
        pytest.param("openai: [", "", id="not-yaml"),
        pytest.param("", "providers", id="empty"),
        pytest.param("\x00", "", id="binary"),
        pytest.param("openai: {bearer_token: '${NO_SUCH_NAME}'}", "NO_SUCH_NAME", id="variable"),
        pytest.param("openai: {bearer_token: 's3cret with spaces'}", "bearer_token", id="token"),
    ],
)
async def test_an_invalid_text_changes_nothing(
    edge: Edge, records: list[logging.LogRecord], text: str, fault: str
) -> None:
    """The last good one stays in force, and one line says what is wrong."""
    before = edge.gateway.current
    assert not take_over(edge.gateway, text, NAME)
    assert edge.gateway.current is before
    assert await status_of(edge) == 200
    ((level, line),) = lines(records)
    assert level == logging.ERROR
    assert "the last good one stays" in line
    assert fault in line
    assert "\n" not in line
    assert "s3cret" not in line
    assert not [record for record in records if record.exc_info]


async def test_an_invalid_part_refuses_the_whole(edge: Edge, upstream: Upstream) -> None:
    """A text with one fault is not used in part."""
    text = changed(upstream, {"bearer_token": "new", "limits": {"body_mib": 0}})
    assert not take_over(edge.gateway, text, NAME)
    assert await status_of(edge) == 200


async def test_a_change_of_providers_needs_a_redeploy(
    edge: Edge, upstream: Upstream, records: list[logging.LogRecord]
) -> None:
    """It is said so; what else is new is in force, and the old providers serve on."""
    text = settings_text({"bearer_token": "new"}, None, "http://127.0.0.1:9/v1")
    assert take_over(edge.gateway, text, NAME)
    warned = [line for level, line in lines(records) if level == logging.WARNING]
    assert len(warned) == 1
    assert "redeploy" in warned[0]
    assert await status_of(edge, key="new") == 200
    assert len(upstream.requests) == 1


async def test_a_route_to_a_new_provider_waits_for_the_redeploy(
    edge: Edge, upstream: Upstream, records: list[logging.LogRecord]
) -> None:
    """What needs a provider that is not there yet cannot be used, and nothing of it is."""
    route = {"model": "m", "adapter": "second"}
    said = json.loads(changed(upstream, {"bearer_token": "new", "model_routes": [route]}))
    said["providers"].append(said["providers"][0] | {"name": "second"})
    before = edge.gateway.current
    assert not take_over(edge.gateway, json.dumps(said), NAME)
    assert edge.gateway.current is before
    assert await status_of(edge) == 200
    assert [level for level, _ in lines(records)] == [logging.WARNING] * 2


async def test_a_request_at_work_keeps_its_configuration(upstream: Upstream) -> None:
    """Neither its time limits nor its route change under it."""
    first, *rest = text("He", "llo")[1:]
    upstream.named["waits"] = (Head(), first, Hang(), *rest)
    async with running(upstream) as edge, asyncio.TaskGroup() as group:
        asking = group.create_task(edge.chat("waits", stream=True))
        await upstream.until(lambda u: u.active == 1)
        new = changed(upstream, {"adapter": "", "timeouts": {"first_token_s": 0.1, "total_s": 0.1}})
        assert take_over(edge.gateway, new, NAME)
        assert await status_of(edge) == 404
        done, _ = await asyncio.wait([asking], timeout=0.6)
        assert not done
        upstream.release()
    assert asking.result().content.endswith(DONE)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file be looked at many times a second."""
    monkeypatch.setattr(reload, "_EVERY_S", 0.02)


@pytest.mark.usefixtures("often")
async def test_the_file_is_followed(
    edge: Edge, upstream: Upstream, tmp_path: Path, records: list[logging.LogRecord]
) -> None:
    """Changed, broken, removed, put back as a link, as a mounted ConfigMap does it."""
    path = tmp_path / NAME
    first = changed(upstream, {})
    path.write_text(first, encoding="utf-8")
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(ConfigFile(path, first, kept_in=tmp_path).watch(edge.gateway))

        async def token_is(token: str) -> None:
            await until(lambda: current_token(edge) == token)

        path.write_text(changed(upstream, {"bearer_token": "a"}), encoding="utf-8-sig")
        await token_is("a")
        path.write_text("openai: {", encoding="utf-8")
        await until(lambda: any(level == logging.ERROR for level, _ in lines(records)))
        path.write_bytes(b"\xff\xfe")
        path.unlink()
        other = tmp_path / "..data"
        other.write_text(changed(upstream, {"bearer_token": "b"}), encoding="utf-8")
        path.symlink_to(other)
        await token_is("b")
        path.write_text(first, encoding="utf-8")
        await token_is("")
        watching.cancel()
    levels = [level for level, _ in lines(records)]
    assert levels == [
        logging.INFO,
        logging.ERROR,
        logging.INFO,
        logging.INFO,
        logging.WARNING,  # the token is gone
    ]


@pytest.mark.usefixtures("often")
async def test_a_file_that_does_not_change_is_not_read_as_new(
    edge: Edge, upstream: Upstream, tmp_path: Path, records: list[logging.LogRecord]
) -> None:
    """Written again with the same content, and a fault told once, are no news."""
    path = tmp_path / NAME
    first = changed(upstream, {})
    path.write_text(first, encoding="utf-8")
    before = edge.gateway.current
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(ConfigFile(path, first, kept_in=tmp_path).watch(edge.gateway))
        path.write_text(first, encoding="utf-8")
        path.touch()
        path.write_text("nonsense", encoding="utf-8")
        await until(lambda: lines(records))
        done, _ = await asyncio.wait([watching], timeout=0.2)
        assert not done
        watching.cancel()
    assert edge.gateway.current is before
    assert len(lines(records)) == 1


@pytest.mark.clause("AUTH-1")
async def test_a_replica_that_starts_anew_serves_by_the_newest_good_text(
    edge: Edge, upstream: Upstream, tmp_path: Path
) -> None:
    """A token that was changed is not good again, not even while the file is broken."""
    deployed = changed(upstream, {"bearer_token": "old"})
    path = tmp_path / NAME
    path.write_text(changed(upstream, {"bearer_token": "new"}), encoding="utf-8")
    for broken in (False, True):
        if broken:
            path.write_text("nonsense", encoding="utf-8")
        take_over(edge.gateway, deployed, NAME)
        ConfigFile(path, deployed, kept_in=tmp_path).take_over(edge.gateway)
        assert current_token(edge) == "new"


def current_token(edge: Edge) -> str:
    return edge.gateway.current.settings.openai.bearer_token.get_secret_value()
