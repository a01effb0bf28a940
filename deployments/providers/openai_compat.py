"""Any server that speaks the OpenAI chat API, reached by its URL."""

from __future__ import annotations

from serve_app.runs import ProviderFacts

PROVIDER = ProviderFacts(type="openai_compat")
