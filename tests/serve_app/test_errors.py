"""Errors: one tree, whole after a handle, one envelope."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator

import pytest

from serve_app.errors import CallerError, Code, ConfigError, GatewayError, InvalidRequestError
from serve_app.wire.errors import envelope


def tree(cls: type[GatewayError]) -> Iterator[type[GatewayError]]:
    yield cls
    for below in cls.__subclasses__():
        yield from tree(below)


CLASSES = sorted(
    {cls for cls in tree(GatewayError) if cls.__module__ == GatewayError.__module__},
    key=lambda cls: cls.__name__,
)
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


def fields(error: GatewayError) -> tuple[object, ...]:
    shown = (error.message, error.param, error.code, error.status)
    return (type(error), *shown, error.retry_after_s, error.provider, error.args)


@each_class
def test_every_error_crosses_a_handle_whole(cls: type[GatewayError]) -> None:
    """A pickle of any error comes back with its class and all of its fields."""
    error = cls(
        "What: 무엇 🙂",
        param="messages[0].role",
        code=Code.UPSTREAM_TIMEOUT,
        status=418,
        retry_after_s=1.5,
        provider="p",
    )
    assert fields(pickle.loads(pickle.dumps(error))) == fields(error)


@each_class
def test_every_error_crosses_a_handle_with_its_defaults(cls: type[GatewayError]) -> None:
    """What was left to the class stays as the class has it."""
    again = pickle.loads(pickle.dumps(cls("x")))
    assert (again.status, again.code) == (cls.default_status, cls.default_code)


@each_class
def test_no_subclass_has_an_init_of_its_own(cls: type[GatewayError]) -> None:
    """`__reduce__` on the base can only rebuild what the base's `__init__` takes."""
    assert cls is GatewayError or "__init__" not in vars(cls)


@each_class
def test_the_status_fits_who_is_to_blame(cls: type[GatewayError]) -> None:
    """An error that the caller can mend is a 4xx."""
    if issubclass(cls, CallerError):
        assert 400 <= cls.default_status < 500
    assert 400 <= cls.default_status < 600


def test_a_configuration_error_keeps_its_faults() -> None:
    """Faults are still single lines after a pickle."""
    again = pickle.loads(pickle.dumps(ConfigError(["a: x", "b: y"])))
    assert (again.faults, str(again)) == (["a: x", "b: y"], "a: x\nb: y")


def test_codes_are_unique() -> None:
    """No two codes share a value, under one name or two."""
    assert len({code.value for code in Code}) == len(Code.__members__)


def test_codes_are_plain_words() -> None:
    """A code is its own name in small letters."""
    assert all(code.value == name.lower() for name, code in Code.__members__.items())


@pytest.mark.clause("ERR-1")
@each_class
def test_the_envelope_has_exactly_four_keys(cls: type[GatewayError]) -> None:
    """`message`, `type`, `param` and `code`, whatever the error is."""
    error = cls("no", param="a.b", code=Code.OVERLOADED, provider="secret-place")
    assert json.loads(envelope(error)) == {
        "error": {"message": "no", "type": cls.error_type, "param": "a.b", "code": "overloaded"}
    }


@pytest.mark.clause("ERR-1")
def test_the_envelope_says_null_where_no_field_is_at_fault() -> None:
    """`param` is there and null."""
    assert json.loads(envelope(InvalidRequestError("no")))["error"]["param"] is None
