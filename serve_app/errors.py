"""Every failure the product can report, as one tree of exceptions.

Rules of this file:
1. The class says who failed and with which HTTP status; the code says what, from `Code` alone.
2. An error crosses a Ray handle whole: `__reduce__` on the base rebuilds it from its fields,
   so subclasses add class attributes and never an `__init__` of their own.
3. What a caller is shown comes from `.message`, never from `str(error)`: after a handle that
   string is the remote traceback.

    GatewayError 500
    ├── CallerError 400
    │   ├── InvalidRequestError 400   UnauthorizedError 401   NotFoundError 404
    │   ├── MethodNotAllowedError 405 TooLargeError 413       OverloadedError 429
    │   ├── UnsupportedThinkError 400
    ├── NotReadyError 503
    ├── UpstreamError 502
    │   ├── UpstreamRejectedError (the upstream's own 4xx about the request)
    │   ├── UpstreamProtocolError 502 UpstreamUnavailableError 503 UpstreamTimeoutError 504
    │   ├── ToolValidationError 502 (what the model wrote)
    └── ConfigError (start-up only, never served)
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Literal

Source = Literal["caller", "gateway", "upstream", "sandbox", "agent"]


class Code(StrEnum):
    """Stable, machine-readable names of what went wrong (`error.code` on the wire)."""

    # the request itself
    INVALID_JSON = "invalid_json"
    MISSING_REQUIRED_PARAMETER = "missing_required_parameter"
    UNKNOWN_PARAMETER = "unknown_parameter"
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    UNSUPPORTED_VALUE = "unsupported_value"
    INVALID_TYPE = "invalid_type"
    INVALID_VALUE = "invalid_value"
    EMPTY_ARRAY = "empty_array"
    EMPTY_STRING = "empty_string"
    ARRAY_ABOVE_MAX_LENGTH = "array_above_max_length"
    STRING_ABOVE_MAX_LENGTH = "string_above_max_length"
    OBJECT_ABOVE_MAX_PROPERTIES = "object_above_max_properties"
    INTEGER_BELOW_MIN_VALUE = "integer_below_min_value"
    INTEGER_ABOVE_MAX_VALUE = "integer_above_max_value"
    DECIMAL_BELOW_MIN_VALUE = "decimal_below_min_value"
    DECIMAL_ABOVE_MAX_VALUE = "decimal_above_max_value"
    CONFLICTING_PARAMETERS = "conflicting_parameters"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    WORKSPACE_REQUIRED = "workspace_required"
    WORKSPACE_NOT_ABSOLUTE = "workspace_not_absolute"
    # where it was sent, and by whom
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    MODEL_NOT_FOUND = "model_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TOO_LARGE = "body_too_large"
    REQUEST_TIMEOUT = "request_timeout"
    # load
    OVERLOADED = "overloaded"
    NOT_READY = "not_ready"
    # the upstream
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    CONTENT_FILTER = "content_filter"
    UPSTREAM_REJECTED = "upstream_rejected"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_RATE_LIMITED = "upstream_rate_limited"
    UPSTREAM_UNAUTHORIZED = "upstream_unauthorized"
    UPSTREAM_UNAVAILABLE = "upstream_unavailable"
    UPSTREAM_DISCONNECTED = "upstream_disconnected"
    UPSTREAM_PROTOCOL_ERROR = "upstream_protocol_error"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    # what the model wrote
    TOOL_VALIDATION_ERROR = "tool_validation_error"
    # thinking
    UNSUPPORTED_THINK_CONTROL = "unsupported_think_control"
    # ourselves
    INTERNAL_ERROR = "internal_error"


class GatewayError(Exception):
    """A failure with everything its caller has to be told.

    Args:
        message: What was wrong, who failed, what to do; shown to the caller as it is.
        param: The request field at fault, in dotted form (`messages[0].role`).
        code: What went wrong, where it differs from the class's own.
        status: The HTTP status, where it differs from the class's own.
        retry_after_s: When a repeat may succeed, in seconds.
        provider: The provider at fault, by its name in the configuration.
    """

    default_status: ClassVar[int] = 500
    error_type: ClassVar[str] = "server_error"
    default_code: ClassVar[Code] = Code.INTERNAL_ERROR
    source: ClassVar[Source] = "gateway"
    #: False where a blind repeat would fail again or do harm (`x-should-retry: false`).
    should_retry: ClassVar[bool | None] = None

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: Code | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
        provider: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code if code is not None else self.default_code
        self.status = status if status is not None else self.default_status
        self.retry_after_s = retry_after_s
        self.provider = provider

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {
            "param": self.param,
            "code": self.code,
            "status": self.status,
            "retry_after_s": self.retry_after_s,
            "provider": self.provider,
        }
        return _rebuild, (self.__class__, self.message, fields)


def _rebuild(cls: type[GatewayError], message: str, fields: dict[str, Any]) -> GatewayError:
    """Make an error again on the other side of a handle."""
    return cls(message, **fields)


class CallerError(GatewayError):
    """The caller can mend it."""

    default_status = 400
    error_type = "invalid_request_error"
    default_code = Code.INVALID_VALUE
    source = "caller"


class InvalidRequestError(CallerError):
    """A wrong type, a missing or refused field, a value out of range."""


class UnauthorizedError(CallerError):
    """The bearer token is missing, malformed or different."""

    default_status = 401
    error_type = "authentication_error"
    default_code = Code.UNAUTHORIZED


class UnsupportedThinkError(CallerError):
    """The provider cannot do to the model's thinking what the caller asks for."""

    default_code = Code.UNSUPPORTED_THINK_CONTROL


class NotFoundError(CallerError):
    """There is no such path, model or object."""

    default_status = 404
    default_code = Code.NOT_FOUND


class MethodNotAllowedError(CallerError):
    """The path exists, the method does not."""

    default_status = 405
    default_code = Code.METHOD_NOT_ALLOWED


class TooLargeError(CallerError):
    """The body is over the configured limit."""

    default_status = 413
    default_code = Code.BODY_TOO_LARGE


class OverloadedError(CallerError):
    """More is asked than there are slots and queue places for."""

    default_status = 429
    error_type = "rate_limit_error"
    default_code = Code.OVERLOADED
    source = "gateway"


class NotReadyError(GatewayError):
    """Something this request needs has not started yet."""

    default_status = 503
    default_code = Code.NOT_READY


class UpstreamError(GatewayError):
    """The inference server behind a provider failed."""

    default_status = 502
    error_type = "upstream_error"
    default_code = Code.UPSTREAM_ERROR
    source = "upstream"


class UpstreamRejectedError(UpstreamError):
    """The upstream refused this request for what it says; another would refuse it too."""

    default_status = 400
    error_type = "invalid_request_error"
    default_code = Code.UPSTREAM_REJECTED


class ToolValidationError(UpstreamError):
    """The model's tool call is broken, or is not the one that the caller insisted on."""

    error_type = "tool_validation_error"
    default_code = Code.TOOL_VALIDATION_ERROR
    should_retry = False


class UpstreamProtocolError(UpstreamError):
    """The upstream answered something that is not the protocol it claims to speak."""

    default_code = Code.UPSTREAM_PROTOCOL_ERROR


class UpstreamUnavailableError(UpstreamError):
    """The upstream cannot be reached, or says that it is not available."""

    default_status = 503
    default_code = Code.UPSTREAM_UNAVAILABLE


class UpstreamTimeoutError(UpstreamError):
    """The upstream was silent for longer than its time limit."""

    default_status = 504
    default_code = Code.UPSTREAM_TIMEOUT


class ConfigError(Exception):
    """The configuration cannot be used. Start-up only; never reaches a caller.

    Args:
        faults: One line a fault, each beginning with the path of the key at fault.
    """

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults

    def __reduce__(self) -> tuple[Any, ...]:
        return ConfigError, (self.faults,)
