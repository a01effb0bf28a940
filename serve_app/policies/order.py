"""The one place that states the order of the policies.

What the caller sent is checked first, as it was sent, before a request gets here. Then:

1. strict output,
2. the generation policy of the route,
3. think control of the provider that is going to run it.

The first two are the same for every provider of a route, so they come before the choice among a
pool's members, which `can_serve` serves; the third comes after it.
"""

from __future__ import annotations

from serve_app.errors import UnsupportedThinkError
from serve_app.policies.generation import apply_generation
from serve_app.policies.strict_output import apply_strict_output
from serve_app.policies.think import control
from serve_app.runs import GenerationPolicy, ProviderFacts, RunRequest


def lower(request: RunRequest, *, strict: bool, policy: GenerationPolicy) -> RunRequest:
    """Lay on a request what does not depend on the provider."""
    if strict:
        request = apply_strict_output(request)
    return apply_generation(
        request,
        default_max_tokens=policy.default_max_tokens,
        min_max_tokens=policy.min_max_tokens,
        default_thinking_token_budget=policy.default_thinking_token_budget,
    )


def prepare(
    request: RunRequest,
    *,
    strict: bool,
    policy: GenerationPolicy,
    facts: ProviderFacts,
    takes_think_fields: bool = True,
) -> RunRequest:
    """Make of the caller's request the one that a provider runs.

    Raises:
        UnsupportedThinkError: The provider cannot do what the request says about thinking.
    """
    lowered = lower(request, strict=strict, policy=policy)
    return control(lowered, facts, takes_think_fields=takes_think_fields)


def can_serve(request: RunRequest, facts: ProviderFacts) -> bool:
    """Whether a provider can do what a request says about thinking.

    Args:
        request: The request as `lower` gives it: what a policy put in has to be possible too.
        facts: The provider.
    """
    try:
        control(request, facts)
    except UnsupportedThinkError:
        return False
    return True
