"""What goes wrong in the engine, as exceptions. Each carries the engine's message: what, where, what to do."""

from __future__ import annotations


class AerieError(Exception):
    """Any error of the engine. `code` is its kind, such as "invalid_argument"."""

    code = "internal"


class InvalidArgumentError(AerieError, ValueError):
    """An option or a request is wrong: the caller can correct it."""

    code = "invalid_argument"


class NotFoundError(AerieError, FileNotFoundError):
    """A file, or something in it, is missing."""

    code = "not_found"


class InvalidDataError(AerieError, ValueError):
    """A file is broken."""

    code = "invalid_data"


class UnsupportedError(AerieError, NotImplementedError):
    """Well-formed, but nothing that this engine handles."""

    code = "unsupported"


class ResourceExhaustedError(AerieError, MemoryError):
    """Memory, the cache or the queue is full, or the context is too short."""

    code = "resource_exhausted"


class RequestCancelledError(AerieError, RuntimeError):
    """The engine was closed before the reply was complete."""

    code = "cancelled"


class InternalError(AerieError, RuntimeError):
    """An error in the engine."""


class TrainingError(AerieError, RuntimeError):
    """The trainer, a program of its own, ended with an error: its text."""

    code = "training"


_CLASSES = {one.code: one for one in (
    InvalidArgumentError, NotFoundError, InvalidDataError, UnsupportedError, ResourceExhaustedError,
    RequestCancelledError, InternalError)}


def error_of(code: str, message: str) -> AerieError:
    """The exception for a status of the engine."""
    return _CLASSES.get(code, InternalError)(message)
