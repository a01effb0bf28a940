"""Any server that speaks the OpenAI chat API, reached by its URL."""

from __future__ import annotations

from serve_app.runs import ProviderFacts

# Nothing is known of what stands there: a server without a reasoning parser of its own passes a
# model's think tags on in the text.
PROVIDER = ProviderFacts(type="openai_compat", leaves_think_tags=True)
