"""`metadata`: at most 16 short pairs, `workspace` taken out, four keys refused."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import Code, InvalidRequestError
from serve_app.wire.metadata import split_metadata


def refused(value: Any) -> tuple[str | None, Code]:
    with pytest.raises(InvalidRequestError) as caught:
        split_metadata(value)
    assert caught.value.status == 400
    return caught.value.param, caught.value.code


def pairs(count: int) -> dict[str, str]:
    return {f"k{number}": "v" for number in range(count)}


@pytest.mark.clause("META-1", "META-3")
@pytest.mark.parametrize(
    "value",
    [
        pytest.param({}, id="none"),
        pytest.param(pairs(16), id="sixteen"),
        pytest.param({"k" * 64: "v" * 512}, id="longest"),
        pytest.param({"한" * 64: "🙂" * 512}, id="longest-in-characters"),
        pytest.param({"": ""}, id="empty-strings"),
        pytest.param({"request_id": "r", "task_id": "t"}, id="examples"),
        pytest.param({"Source": "x", "cli.x": "y", "workspaces": "z"}, id="near-misses"),
    ],
)
def test_pairs_within_the_limits_are_kept(value: dict[str, str]) -> None:
    """Characters are counted, not bytes, and no key but `workspace` means anything."""
    assert split_metadata(value) == (None, value)


@pytest.mark.clause("META-2")
@pytest.mark.parametrize("workspace", ["/repos/a", "relative", "", "작업", "x" * 512])
def test_the_workspace_is_taken_out(workspace: str) -> None:
    """It becomes the run's workspace and is not left in the metadata; empty is not absent."""
    value = {"a": "b", "workspace": workspace}
    assert split_metadata(value) == (workspace, {"a": "b"})
    assert value == {"a": "b", "workspace": workspace}


@pytest.mark.clause("META-1")
def test_the_workspace_counts_as_a_pair() -> None:
    """Fifteen others may stand beside it, not sixteen."""
    assert split_metadata({"workspace": "/w", **pairs(15)}) == ("/w", pairs(15))
    assert refused({"workspace": "/w", **pairs(16)}) == (
        "metadata",
        Code.OBJECT_ABOVE_MAX_PROPERTIES,
    )


@pytest.mark.clause("META-1")
@pytest.mark.parametrize("count", [17, 1000])
def test_more_than_sixteen_pairs_are_refused(count: int) -> None:
    """One more than the limit is 400."""
    assert refused(pairs(count)) == ("metadata", Code.OBJECT_ABOVE_MAX_PROPERTIES)


@pytest.mark.clause("META-1")
@pytest.mark.parametrize("key", ["k", "workspace"])
@pytest.mark.parametrize("value", [None, True, False, 0, 1.5, [], ["x"], {}, {"a": "b"}])
def test_a_value_that_is_no_string_is_refused(key: str, value: Any) -> None:
    """Null is no string either; the pair is named."""
    assert refused({"a": "b", key: value}) == (f"metadata.{key}", Code.INVALID_TYPE)


@pytest.mark.clause("META-1")
@pytest.mark.parametrize("key", ["k", "workspace"])
@pytest.mark.parametrize("letter", ["v", "한", "🙂"])
def test_a_value_of_513_characters_is_refused(key: str, letter: str) -> None:
    """The pair is named."""
    expected = (f"metadata.{key}", Code.STRING_ABOVE_MAX_LENGTH)
    assert refused({key: letter * 513}) == expected


@pytest.mark.clause("META-1")
@pytest.mark.parametrize("letter", ["k", "한"])
@pytest.mark.parametrize("length", [65, 100_000])
def test_a_key_of_65_characters_is_refused(letter: str, length: int) -> None:
    """The pair is named by as much of its key as a key may have."""
    expected = (f"metadata.{letter * 64}", Code.STRING_ABOVE_MAX_LENGTH)
    assert refused({letter * length: "v"}) == expected


@pytest.mark.clause("CHAT-3")
@pytest.mark.parametrize("value", ["x", "", None, {}])
@pytest.mark.parametrize("key", ["cli", "inference", "nomadcode", "source"])
def test_wrappers_are_refused(key: str, value: Any) -> None:
    """Their name is enough, whatever the value."""
    assert refused({key: value}) == (f"metadata.{key}", Code.UNSUPPORTED_PARAMETER)


@pytest.mark.clause("META-1")
@pytest.mark.parametrize("value", [True, 0, 1.5, "x", [], [["a", "b"]]])
def test_what_is_no_object_is_refused(value: Any) -> None:
    """`metadata` itself is named."""
    assert refused(value) == ("metadata", Code.INVALID_TYPE)


def test_null_is_absent() -> None:
    """No metadata is no fault."""
    assert split_metadata(None) == (None, {})
