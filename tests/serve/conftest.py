"""A product that runs once for all tests of this ring, over the real model and a fake upstream."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fakes.product import Product, started
from tests.fakes.upstream import Upstream

CONFIG = """
openai:
  timeouts: {{first_token_s: 30, idle_s: 10}}
  model_routes:
    - {{model: fake, adapter: fake, target: fake}}
    - {{model: paced, adapter: fake, target: "script:paced:2000:20"}}
    - {{model: broken, adapter: fake, target: "script:status:500"}}
    - {{model: sleepy, adapter: sleeper, target: fake}}
models:
  - {{id: smollm2, providers: [{{provider: local}}]}}
providers:
  - {{name: local, type: llama_cpp, slots: 2, engine: {{context: 1024}}}}
  - {{name: fake, type: openai_compat, url: "{url}", slots: 256, api_key: "${{IOP_TEST_KEY}}"}}
  - {{name: sleeper, type: openai_compat, url: "{url}", autoscaling: {{min: 0, max: 1}}}}
"""


@pytest.fixture(scope="session")
def upstream() -> Generator[Upstream]:
    """The fake upstream of the running product."""
    with Upstream() as running:
        yield running


@pytest.fixture(scope="session")
def product(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Generator[Product]:
    """The running product."""
    folder: Path = tmp_path_factory.mktemp("product")
    key = {"IOP_TEST_KEY": "sk-fake-key"}
    with started(CONFIG.format(url=upstream.url), folder, environment=key) as running:
        yield running
