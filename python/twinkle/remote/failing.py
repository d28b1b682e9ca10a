"""Errors that leave a worker: what cannot be pickled is replaced by what says the same."""

from __future__ import annotations

import pickle
import re
import traceback
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from twinkle.remote.pickling import packed

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CarriedError",
    "UnsendableError",
    "arrived",
    "sendable",
    "sendable_errors",
    "shortened",
    "told_of",
    "trace_of",
]

#: How many characters of an error's words a message repeats, and how many of where it was raised.
_MOST_WORDS, _MOST_TRACE = 2_000, 16_000

_Method = TypeVar("_Method", bound="Callable[..., Any]")

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class UnsendableError(RuntimeError):
    """Stands for an error that cannot be sent: `kind` is the name of its type, `text` its words."""

    def __init__(self, kind: str, text: str, trace: str = "") -> None:
        super().__init__(kind, text, trace)
        self.kind, self.text, self.trace = kind, text, trace
        if trace:
            self.add_note(shortened(trace, _MOST_TRACE))

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class CarriedError(UnsendableError):
    """Carries an error in which there is something of a script: Ray would define its classes anew where it arrives."""

    def __init__(self, kind: str, text: str, trace: str, data: bytes) -> None:
        super().__init__(kind, text, trace)
        self.data = data
        self._opened: BaseException | None = None

    def __reduce__(self) -> Any:
        return CarriedError, (self.kind, self.text, self.trace, self.data)

    def opened(self) -> BaseException:
        """The error itself, the same each time."""
        if self._opened is None:
            try:
                self._opened = pickle.loads(self.data)
            except Exception:  # whatever a user's class raises, the words are here
                self._opened = self
        return self._opened


def sendable(error: BaseException) -> BaseException:
    """The error itself where it arrives as it is, else what carries it, or stands for it."""
    text, trace = text_of(error), "".join(traceback.format_exception(error))
    try:
        # What ends a process would end it where it arrives.
        if not isinstance(error, Exception):
            return UnsendableError(type(error).__name__, text, trace)
        data = packed(error)
        again = pickle.loads(data)
        if (type(again).__qualname__, str(again)) == (type(error).__qualname__, str(error)):
            return CarriedError(type(error).__name__, text, trace, data) if b"__main__" in data else error
    except Exception:  # whatever a user's class raises, the caller is to hear of the error itself
        pass
    return UnsendableError(type(error).__name__, text, trace)


def text_of(error: BaseException) -> str:
    """The words of an error; none where they fail, which leaves its type."""
    try:
        return str(error) or repr(error)
    except Exception:  # a user's class may raise anything here
        return ""


def sendable_errors(method: _Method) -> _Method:
    """The same method, whose errors can be sent; that a script would end here is an error as well."""

    @wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except (Exception, SystemExit) as error:
            if hasattr(error, "ray_terminate_msg"):
                # Ray itself ends the process.
                raise
            found = sendable(error)
            if found is error:
                raise
            raise found from None

    return called  # type: ignore[return-value]


def told_of(error: BaseException) -> str:
    """The type of an error and its words, without colours and without pages, whether Ray or a user writes them."""
    if isinstance(error, UnsendableError):
        text = str(error)
    else:
        text = text_of(error)
        if type(error).__module__.partition(".")[0] == "ray":
            text = next((line for line in text.splitlines() if line.strip()), "")
        text = f"{type(error).__name__}: {text}"
    return shortened(_COLOURS.sub("", text), _MOST_WORDS)


def trace_of(error: BaseException) -> str:
    """Where an error was raised that came from another process, or is to go to one; empty where its notes say that."""
    cause = getattr(error, "cause", error)
    if isinstance(cause, UnsendableError):
        return shortened(cause.trace, _MOST_TRACE) if isinstance(cause, CarriedError) else ""
    # The words of an error that Ray brings from a worker are the traceback there.
    text = str(error) if arrived(error) else "".join(traceback.format_exception(error))
    return shortened(_COLOURS.sub("", text).strip(), _MOST_TRACE)


def arrived(error: object) -> bool:
    """Whether Ray has brought this from a worker, whose code raised it."""
    return hasattr(error, "as_instanceof_cause")


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters, and how many it had; of a longer one the beginning and the end."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} ... ({len(text)} characters) ... {text[-half:]}"
