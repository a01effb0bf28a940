"""The whole graph: the only place that knows the ingress and the deployments together.

No postponed annotations here: Serve reads the builder's own to know the type of its arguments.
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from ray.serve import Application

from deployments import providers
from deployments.provider import ProviderReplica
from serve_app import config
from serve_app.config import Provider
from serve_app.ingress.deployment import Ingress

#: Beyond what an ingress replica lets in by itself: Serve would make the rest wait in silence.
INGRESS_REQUESTS = 100_000


class BuildArgs(BaseModel):
    """`args` of the application in `serve_config.yaml`."""

    model_config = ConfigDict(extra="forbid")

    #: Path of `edge.yaml`.
    config: str = "configs/edge.yaml"


def build(args: BuildArgs) -> Application:
    """Make the application from its configuration.

    What goes to the replicas is the file's text as it stands: each replica puts in its own
    host's environment, so that no secret is stored in the cluster.

    Raises:
        ConfigError: The configuration cannot be used.
    """
    path = Path(args.config).absolute()
    settings = config.read(path, types=providers.names())
    text = path.read_text(encoding="utf-8-sig")
    links = {
        provider.name: (providers.load(provider.type).facts, _provider(provider, text))
        for provider in settings.providers
    }
    options: dict[str, Any] = {"max_ongoing_requests": INGRESS_REQUESTS}
    types = tuple(providers.names())
    return Ingress.options(**options).bind(text, str(path), links, types)


def _provider(provider: Provider, text: str) -> Application:
    """The deployment of one provider."""
    scaling = provider.autoscaling
    options: dict[str, Any] = {
        "name": f"provider-{provider.name}",
        "max_ongoing_requests": provider.slots,
        "max_queued_requests": max(1, provider.queue),
    }
    if scaling.min == scaling.max:
        options["num_replicas"] = scaling.min
    else:
        options["autoscaling_config"] = {
            "min_replicas": scaling.min,
            "max_replicas": scaling.max,
            "target_ongoing_requests": scaling.target or max(1.0, 0.8 * provider.slots),
            "upscale_delay_s": 2,
            "downscale_delay_s": 30,
            "look_back_period_s": 5,
        }
    return ProviderReplica.options(**options).bind(text, provider.name)
