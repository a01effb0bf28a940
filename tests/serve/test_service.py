"""The running product, asked as its users ask it: real Ray, real HAProxy, real model."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.fakes.product import Product, ask, wait_for
from tests.fakes.upstream import Upstream

pytestmark = pytest.mark.serve

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]


@pytest.fixture
def client(product: Product) -> openai.OpenAI:
    """The official client, which never repeats by itself here."""
    return openai.OpenAI(base_url=product.api, api_key="none", max_retries=0, timeout=60)


@pytest.mark.clause("CHAT-5")
def test_the_official_client_gets_a_whole_answer(client: openai.OpenAI) -> None:
    """The real model answers through Ray Serve, with usage and the caller's model name."""
    answer = client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=16)
    assert answer.model == "smollm2"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in {"stop", "length"}
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 16


@pytest.mark.clause("CHAT-5")
def test_the_official_client_gets_a_stream(client: openai.OpenAI) -> None:
    """A stream brings the role first, text in pieces, a finish reason and the usage chunk."""
    stream = client.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] in {"stop", "length"}
    assert chunks[-1].usage is not None


async def test_the_official_async_client_streams_too(product: Product) -> None:
    """The asynchronous client sees the same stream."""
    async with openai.AsyncOpenAI(base_url=product.api, api_key="none") as client:
        stream = await client.chat.completions.create(
            model="smollm2",
            messages=QUESTION,
            max_tokens=8,
            stream=True,
        )
        pieces = [c.choices[0].delta.content or "" async for c in stream if c.choices]
    assert "".join(pieces)


@pytest.mark.clause("CHAT-4")
def test_the_seed_reaches_the_real_model(client: openai.OpenAI) -> None:
    """The same seed at a high temperature gives the same text twice."""
    texts = {
        client.chat.completions.create(
            model="smollm2",
            messages=QUESTION,
            max_tokens=12,
            temperature=1.5,
            seed=7,
        )
        .choices[0]
        .message.content
        for _ in range(2)
    }
    assert len(texts) == 1


@pytest.mark.clause("ROUTE-4")
def test_models_are_listed(client: openai.OpenAI) -> None:
    """`/v1/models` lists routes and catalog; one of them can be retrieved."""
    names = [model.id for model in client.models.list()]
    assert names == ["fake", "paced", "broken", "sleepy", "smollm2"]
    assert client.models.retrieve("smollm2").id == "smollm2"


def test_the_curl_line_that_is_printed_works(product: Product) -> None:
    """What `iop-edge run` prints can be pasted."""
    line = re.search(r"Try: +(curl .*)", product.output())
    assert line is not None
    done = subprocess.run(
        [*shlex.split(line.group(1)), "-sS", "--max-time", "60"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["object"] == "chat.completion"


@pytest.mark.clause("ERR-3")
@pytest.mark.parametrize(
    ("sent", "kept"),
    [("my-id.1:2_3", True), ("with space", False), ("x" * 129, False), (None, False)],
    ids=["good", "space", "long", "none"],
)
def test_one_request_id_from_end_to_end(
    product: Product, upstream: Upstream, sent: str | None, *, kept: bool
) -> None:
    """The answer has exactly one id, the caller's if it is good; upstream and log have the same."""
    headers = {} if sent is None else {"x-request-id": sent}
    body = {"model": "fake", "messages": QUESTION}
    answer = httpx.post(f"{product.api}/chat/completions", json=body, headers=headers)
    ids = answer.headers.get_list("x-request-id")
    assert len(ids) == 1
    assert (ids[0] == sent) is kept
    assert upstream.requests[-1].headers["x-request-id"] == ids[0]
    wait_for(lambda: f'"request_id":"{ids[0]}"' in product.logs("access_*.log"))


@pytest.mark.clause("ERR-1")
def test_serves_own_switches_are_not_the_callers(product: Product) -> None:
    """A caller cannot set Serve's time limit for the request, which would cut the answer."""
    headers = {"x-request-timeout-seconds": "0.001", "x-request-disconnect-disabled": "1"}
    body = {"model": "smollm2", "messages": QUESTION, "max_tokens": 20}
    answer = httpx.post(f"{product.api}/chat/completions", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200


@pytest.mark.clause("ERR-1")
def test_a_failed_upstream_is_named(product: Product) -> None:
    """An upstream's 500 is a 502 in the envelope that says which provider failed."""
    answer = ask(product.api, "broken")
    assert answer.status_code == 502
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["x-iop-provider"] == "fake"


def test_the_upstreams_key_is_its_own(product: Product, upstream: Upstream) -> None:
    """The provider's key goes to the upstream and is in no log."""
    assert ask(product.api, "fake").status_code == 200
    assert upstream.requests[-1].headers["authorization"] == "Bearer sk-fake-key"
    assert "sk-fake-key" not in product.logs("*")


def test_a_provider_at_rest_wakes_up(product: Product) -> None:
    """A provider without replicas does not hold up readiness, and gets one when asked."""
    assert httpx.get(f"{product.url}/readyz").status_code == 200
    assert ask(product.api, "sleepy").status_code == 200


def test_a_new_configuration_is_followed(product: Product) -> None:
    """A route that is added to the file is served without a restart; a broken file is not used."""
    text = product.config.read_text()
    try:
        product.config.write_text(text.replace("models:", "nonsense: 1\nmodels:", 1))
        said = "is not used, the last good one stays"
        wait_for(lambda: said in product.logs("replica_edge_Ingress*.log"), 15)
        assert ask(product.api, "fake").status_code == 200
        new = "    - {model: added, adapter: fake, target: fake}\nmodels:"
        product.config.write_text(text.replace("models:", new, 1))
        wait_for(lambda: ask(product.api, "added").status_code == 200, 15)
    finally:
        product.config.write_text(text)
    wait_for(lambda: ask(product.api, "added").status_code == 404, 15)
