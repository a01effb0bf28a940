"""One file for each kind of upstream, facts only.

A file `<type>.py` holds `PROVIDER`, and `command` where the type has an engine of its own. To put
the file here is all it takes to make the type known.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from dataclasses import dataclass
from typing import Protocol

from serve_app.config import Engine
from serve_app.errors import ConfigError
from serve_app.runs import ProviderFacts


class EngineCommand(Protocol):
    """Gives the command line of an engine."""

    def __call__(
        self, engine: Engine, *, slots: int, host: str, port: int, python: str
    ) -> list[str]:
        """Give the command line that serves `slots` requests at once on this address."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderType:
    """What one of the files here says."""

    facts: ProviderFacts
    #: None where the type has no engine.
    command: EngineCommand | None = None


def names() -> list[str]:
    """List the known types."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def always_thinking() -> frozenset[str]:
    """Types that cannot be told to answer without thinking."""
    controls = {name: load(name).facts.think for name in names()}
    return frozenset(
        name for name, control in controls.items() if control is not None and control.off is None
    )


def load(name: str) -> ProviderType:
    """Give what is known of a type.

    Raises:
        ConfigError: There is no file for it.
    """
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise ConfigError(
            [f"unknown provider type '{name}', it is none of {', '.join(known)}{hint}"]
        )
    module = importlib.import_module(f"{__name__}.{name}")
    return ProviderType(facts=module.PROVIDER, command=getattr(module, "command", None))
