"""Requests as real clients sent them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serve_app.runs import Json
from serve_app.wire.body import parse_object
from tests.serve_app.wire.chat_bodies import taken

FOLDER = Path(__file__).parents[2] / "golden" / "clients" / "chat"
BODIES = [
    pytest.param(fields, id=f"{path.stem}-{number}")
    for path in sorted(FOLDER.glob("*.json"))
    for number, fields in enumerate(json.loads(path.read_text(encoding="utf-8")))
]


@pytest.mark.clause("CHAT-1")
@pytest.mark.parametrize("fields", BODIES)
def test_what_a_real_client_sends_is_taken(fields: Json) -> None:
    """Every recorded body passes, with its messages and tools as they were."""
    request = taken(parse_object(json.dumps(fields).encode(), max_depth=100))
    assert request.messages == fields["messages"]
    assert request.tools == fields.get("tools")


def test_there_are_recordings_of_many_clients() -> None:
    """The folder is found and holds what it should."""
    assert len(list(FOLDER.glob("*.json"))) >= 13
    assert len(BODIES) >= 40
