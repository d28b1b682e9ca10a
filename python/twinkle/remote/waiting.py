"""Waiting for the workers of one call: one deadline for all of them, and the first failure ends the call at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from twinkle.errors import PlanError, RemoteCallError
from twinkle.remote.failing import CarriedError, arrived, told_of, trace_of

__all__ = [
    "Deadline",
    "Handed",
    "Told",
    "call_error",
    "check_timeout",
    "note_others",
    "raise_told",
    "results_of",
    "rows_told",
    "told_by",
    "who_of",
]

#: How many workers a note or a message names.
_SHOWN = 8

#: Says about worker i what a failure names: its number, coordinates, node and rows.
Told = Callable[[int], dict[str, Any]]
#: Says about an object that a call was handed, by its number, who made it; None where nobody in particular did.
Handed = Callable[[str], dict[str, Any] | None]


class Deadline:
    """The end of one call; None is never."""

    def __init__(self, seconds: float | None) -> None:
        check_timeout(seconds)
        self.seconds = seconds
        self.end = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """Seconds until the end, 0 when it has passed; None without one."""
        return None if self.end is None else max(self.end - time.monotonic(), 0.0)


def check_timeout(seconds: Any) -> None:
    """Refuses what is no number of seconds to wait."""
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if seconds is not None and not (number and 0 < seconds < float("inf")):
        raise PlanError(f"timeout must be seconds above 0, or None to wait, not {seconds!r}", timeout=seconds)


def results_of(
    references: Sequence[Any], deadline: Deadline, method: str, told: Told, handed: Handed | None = None
) -> list[Any]:
    """What all of these calls return, in order; the first that fails, or the deadline, is a RemoteCallError at once.

    A call that is not begun since what it was to be handed is lost is the failure of who made that, if `handed` knows.

    The other calls are left to end. Ray cannot stop a method that runs, and one that is cancelled on its way leaves a
    gap in the order of its actor, at which the next call waits for half a minute.
    """
    import ray

    try:
        # Ray raises as soon as any of them has failed, whatever the others still do.
        return list(ray.get(list(references), timeout=deadline.left))
    except ray.exceptions.GetTimeoutError:
        _leave(references)
        done = set(ray.wait(list(references), num_returns=len(references), timeout=0)[0])
        late = [told(at)["worker"] for at, reference in enumerate(references) if reference not in done]
        if not late:
            # The last of them ended between one look and the next.
            return results_of(references, Deadline(None), method, told, handed)
        shown = ", ".join(map(str, late[:_SHOWN])) + (f", ... ({len(late)})" if len(late) > _SHOWN else "")
        those = f"workers {shown} were" if len(late) > 1 else f"worker {shown} was"
        raise RemoteCallError(
            f"{method} was not done after {deadline.seconds} s: {those} still at it",
            method=method,
            workers=late,
            timeout=deadline.seconds,
        ) from None
    except ray.exceptions.RayError as error:
        _raise_first(references, method, told, handed, error)
    except BaseException:
        _leave(references)
        raise


def _raise_first(
    references: Sequence[Any], method: str, told: Told, handed: Handed | None, error: Exception
) -> NoReturn:
    import ray

    failed: list[tuple[int, Exception]] = []
    ready = set(ray.wait(list(references), num_returns=len(references), timeout=0)[0])
    for index, reference in enumerate(references):
        if reference in ready:
            try:
                ray.get(reference, timeout=0)
            except ray.exceptions.GetTimeoutError:
                continue
            except ray.exceptions.RayError as failure:
                failed.append((index, failure))
    _leave([reference for reference in references if reference not in ready])
    at, found = failed[0] if failed else (0, error)
    cause: Any = _cause(found)
    maker = handed(cause.object_ref_hex) if handed and isinstance(cause, ray.exceptions.ObjectLostError) else None
    if maker is not None:
        died = "has died" if isinstance(cause, ray.exceptions.OwnerDiedError) else "no longer has it"
        raise RemoteCallError(
            f"{method}: shard {maker['shard']} of the rows that worker {told(at)['worker']} was to be given is lost: "
            f"worker {maker['worker']} of group {maker['group']!r} (node {maker['node']}), which made it, {died}",
            method=method,
            cause=cause,
            lost=cause.object_ref_hex,
            **maker,
        ) from cause
    made = call_error(method, told(at), found)
    others = [f"worker {told(index)['worker']}: {told_of(_cause(failure))}" for index, failure in failed[1:]]
    note_others(made, others)
    raise made from cause


def _leave(references: Sequence[Any]) -> None:
    """Takes what calls come to that nobody waits for: of an error that nobody has taken Ray prints pages."""
    for reference in references:
        reference.future()


def _cause(error: Any) -> Any:
    cause = getattr(error, "cause", None) or error
    return cause.opened() if isinstance(cause, CarriedError) else cause


def rows_told(numbers: Sequence[int]) -> dict[str, Any]:
    """Which rows a worker had: as (start, stop) where they follow one another, else all numbers; and in words."""
    if numbers and numbers[-1] - numbers[0] + 1 == len(numbers):
        text = f"row {numbers[0]}" if len(numbers) == 1 else f"rows {numbers[0]} to {numbers[-1]}"
        return {"rows": (numbers[0], numbers[-1] + 1), "rows_text": text}
    return {"rows": numbers, "rows_text": f"{len(numbers)} rows"}


def call_error(method: str, told: dict[str, Any], error: BaseException | str, trace: str = "") -> RemoteCallError:
    """The error of one worker, with who it was and which rows it had, and in a note where it was raised.

    Of another process it may be words and `trace` alone.
    """
    cause: Any = _cause(error)
    who = who_of(told)
    coordinates = ", ".join(f"{axis}={index}" for axis, index in (told.get("coordinates") or {}).items())
    where = [
        text
        for text in (
            coordinates,
            f"rank {told['rank']}" if "rank" in told else "",
            f"node {told['node']}" if told.get("node") else "",
            told.get("rows_text"),
        )
        if text
    ]
    text = cause if isinstance(cause, str) else told_of(cause)
    made = RemoteCallError(
        f"{method} failed on {who} ({'; '.join(where)}): {text}",
        **_fields(method, told, None if isinstance(cause, str) else cause),
    )
    # An error of this very process has its own traceback.
    if isinstance(error, BaseException) and arrived(error):
        trace = trace_of(error)
    if trace:
        made.add_note(f"on {who}:\n{trace}")
    return made


def told_by(failure: BaseException | None) -> tuple[str, str] | None:
    """What the other ranks are told of what failed here: its words, and where it was raised."""
    return None if failure is None else (told_of(failure), trace_of(failure))


def raise_told(
    method: str,
    told: Sequence[tuple[str, str] | None],
    failure: BaseException | None,
    rank: int,
    place: Callable[[int], dict[str, Any]],
) -> None:
    """Raises what any rank has told; a rank that failed itself has its own cause to show, and its own interrupt."""
    if failure is not None and not isinstance(failure, Exception):
        raise failure
    failed = {one: found for one, found in enumerate(told) if found is not None}
    if failed:
        first = min(failed) if failure is None else rank
        words, trace = failed.pop(first)
        made = call_error(method, place(first), failure or words, "" if failure else trace)
        note_others(made, [f"{who_of(place(one))}: {text}" for one, (text, _) in failed.items()])
        raise made from failure


def note_others(error: BaseException, others: Sequence[str]) -> None:
    """Says in a note of an error what else had failed by then, each in words."""
    if others:
        more = f"\n... ({len(others)})" if len(others) > _SHOWN else ""
        error.add_note("failed as well so far: " + "\n".join(others[:_SHOWN]) + more)


def who_of(told: dict[str, Any]) -> str:
    """Who failed, in words: a worker, or a rank that is none."""
    return f"worker {told['worker']}" if told["worker"] is not None else f"rank {told['rank']}"


def _fields(method: str, told: dict[str, Any], cause: Any) -> dict[str, Any]:
    kept = {key: value for key, value in told.items() if key != "rows_text"}
    return {"method": method, "cause": cause, **kept}
