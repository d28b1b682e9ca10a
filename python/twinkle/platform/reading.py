"""Who a process is: one record of what its launcher's variables say.

The first launcher of the table whose variables are there decides. A question does not complain about what it does not
need: every field is read on its own, and `resolve` is the one place that refuses for all of them together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from twinkle.errors import LauncherError
from twinkle.platform.checks import shown, whole
from twinkle.platform.launchers import FIELDS, INTERACTIVE, LAUNCHERS, SINGLE, Launcher

__all__ = ["LaunchRecord", "Reading", "integer", "read", "resolve"]


@dataclass(frozen=True)
class LaunchRecord:
    """Who one process is, and where each answer came from; a field that nothing tells is None.

    Without a launcher it is nobody (`rank` and `local_rank` -1) in a world of one.
    """

    rank: int | None
    world_size: int | None
    local_rank: int | None
    local_world_size: int | None
    node_rank: int | None
    nnodes: int | None
    #: The row of `LAUNCHERS` that decided, 'single' without one, 'arguments' for these alone.
    launcher: str = "single"
    #: For each field that is known, the variable it was read from, or the sum it was computed by.
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)
    #: The index among the processes of this node; differs from `local_rank` where that is virtual.
    local_index: int | None = None
    #: Whether the launcher gave this process devices of its own, so that its device is index 0 whatever its local rank.
    isolated: bool = False


class Reading:
    """What a mapping says, question by question; `answer` refuses only for the field it is asked."""

    def __init__(self, environ: Mapping[str, str], given: Mapping[str, int] | None = None) -> None:
        self._environ = environ
        #: Every variable that was looked at, with its value: while these stay, so does the reading.
        self.seen: dict[str, str | None] = {}
        self.values: dict[str, int] = {}
        self.sources: dict[str, str] = {}
        self.problems: dict[str, LauncherError] = {}
        self.launcher = self._deciding()
        if given and self.launcher is None:
            self.launcher = Launcher("arguments", (), (), ())
        if self.launcher is None:
            self.values, self.sources = dict(SINGLE), dict.fromkeys(FIELDS, "no launcher")
        else:
            self._fill(self.launcher, given or {})
        self.isolated, self.local_index = self._place()

    def answer(self, what: str) -> int:
        """The value of one field, or the `LauncherError` that says why there is none."""
        if what in self.problems:
            raise self.problems[what]
        if what in self.values:
            return self.values[what]
        raise self._missing(what)

    def record(self) -> LaunchRecord:
        """Everything at once; refused when anything is malformed, contradictory, or half there."""
        for what in FIELDS:
            if what in self.problems:
                raise self.problems[what]
        if "rank" not in self.values:
            raise self._missing("rank")
        name = self.launcher.name if self.launcher is not None else "single"
        return LaunchRecord(
            **{what: self.values.get(what) for what in FIELDS},
            launcher=name,
            sources=dict(self.sources),
            local_index=self.local_index,
            isolated=self.isolated,
        )

    def current(self, environ: Mapping[str, str]) -> bool:
        """Whether the variables that this was read from are still what they were."""
        return all(environ.get(name) == value for name, value in self.seen.items())

    def look(self, *names: str) -> tuple[str, str] | None:
        """The first of these variables that is set, with its value; an empty one counts as unset."""
        for name in names:
            value = self.seen[name] = self._environ.get(name)
            if value is not None and not isinstance(value, str):
                raise LauncherError(f"{name} must be text, not {shown(value)}", variable=name)
            if value and value.strip():
                return name, value
        return None

    def _present(self) -> Iterator[Launcher]:
        for launcher in LAUNCHERS:
            if all(self.look(*names) for names in launcher.shown_by) and not self._outer(launcher):
                yield launcher

    def _outer(self, launcher: Launcher) -> bool:
        """Whether a step manager's variables are about somebody else: an interactive shell, or a raylet."""
        if launcher.kind != "manager":
            return False
        job = self.look("SLURM_JOB_NAME") if launcher.name == "slurm" else None
        return self.look("RAY_RAYLET_PID") is not None or (job is not None and job[1] in INTERACTIVE)

    def _deciding(self) -> Launcher | None:
        """The first launcher that is there; half a torch set gives way to a whole set that agrees with it."""
        present = self._present()
        first = next(present, None)
        if first is None or first.kind != "torch" or (self.look("RANK") and self.look("WORLD_SIZE")):
            return first
        half = "rank" if self.look("RANK") else "world_size"
        ours = self._number(first, half)
        for other in present:
            if other.kind != "torch" and self.look(*other.rank) and self.look(*other.world_size):
                theirs = self._number(other, half)
                if ours is None or theirs is None or ours[1] == theirs[1]:
                    self.problems.clear()
                    return other
                self._refuse((half,), f"{_set(ours)} contradicts {_set(theirs)}", first.name, other.name)
                break
        # A world of one without a rank is what a process is anyway.
        return None if half == "world_size" and ours is not None and ours[1] == 1 and not self.problems else first

    def _number(self, launcher: Launcher, what: str) -> tuple[str, int] | None:
        """A field's variable and number as a launcher has them; a malformed one is noted as a problem of the field."""
        names: tuple[str, ...] = getattr(launcher, what)
        found = self.look(*names)
        if found is None or (what == "nnodes" and ":" in found[1]):
            # An elastic launch gives a range of node counts, which says nothing about this run.
            return None
        number = integer(found[1])
        if number is None:
            self._refuse((what,), f"{found[0]}={shown(found[1])} is not a non-negative integer", launcher.name)
            return None
        return found[0], number

    def _refuse(self, about: tuple[str, ...], sentence: str, *launchers: str) -> None:
        names = " and ".join(launchers)
        for what in about:
            self.problems.setdefault(what, LauncherError(f"{sentence} (variables of {names})", fields_named=about))

    def _fill(self, launcher: Launcher, given: Mapping[str, int]) -> None:
        for what in FIELDS:
            if what in given:
                self.problems.pop(what, None)
                self.values[what], self.sources[what] = given[what], "argument"
            elif found := self._number(launcher, what):
                self.sources[what], self.values[what] = found
        self._agree(launcher, given)
        self._derive(launcher)
        self._order(launcher)

    def _agree(self, launcher: Launcher, given: Mapping[str, int]) -> None:
        """Two launchers that count the same world must agree on the rank; another world is an outer layer's."""
        if (
            launcher.owner
            or launcher.kind == "manager"
            or "rank" in given
            or not {"rank", "world_size"} <= {*self.values}
        ):
            return
        rivals = ("mpi",) if launcher.kind == "mpi" else ("mpi", "manager")
        for other in self._present():
            rank, world = self.look(*other.rank), self.look(*other.world_size)
            if other is launcher or other.kind not in rivals or rank is None or world is None:
                continue
            differs = integer(rank[1]) not in (None, self.values["rank"])
            if differs and integer(world[1]) == self.values["world_size"]:
                sentence = f"{self._said('rank')} contradicts {rank[0]}={rank[1]}"
                self._refuse(("rank",), f"{sentence} in a world of {world[1]}", launcher.name, other.name)

    def _derive(self, launcher: Launcher) -> None:
        """Fill in what follows from what is there; every sum is named as the source."""
        known = self.values
        if known.get("world_size") == 1 and known.get("rank") == 0:
            for what in FIELDS[2:]:
                self._settle(what, SINGLE[what] if SINGLE[what] > 0 else 0, "world_size = 1")
        if launcher.tasks_per_node and "node_rank" in known and (tasks := self.look(*launcher.tasks_per_node)):
            self._count_tasks(launcher, *tasks)
        world, local_world, rank = known.get("world_size"), known.get("local_world_size"), known.get("rank")
        if world is not None and known.get("nnodes") == 1:
            self._settle("local_world_size", world, "world_size on one node")
        if world and local_world and world % local_world == 0:
            self._settle("nnodes", world // local_world, "world_size // local_world_size")
            in_blocks = (known.get("local_rank", 0) - (rank or 0)) % local_world == 0
            if rank is not None and (in_blocks or launcher.owner) and known.get("nnodes") == world // local_world:
                self._settle("node_rank", rank // local_world, "rank // local_world_size")
        if known.get("nnodes") == 1:
            self._settle("node_rank", 0, "nnodes = 1")

    def _settle(self, what: str, value: int, source: str) -> None:
        if what not in self.values and what not in self.problems:
            self.values[what], self.sources[what] = value, source

    def _count_tasks(self, launcher: Launcher, name: str, text: str) -> None:
        node = self.values["node_rank"]
        counted = _task_count(text, node)
        if counted is None:
            self._refuse(
                ("local_world_size",), f"{name}={shown(text)} names no task count for node {node}", launcher.name
            )
            return
        count, total = counted
        self._settle("local_world_size", count, f"{name} at node {node}")
        if "STEP" in name and total != self.values.get("world_size", total):
            sentence = f"{name}={shown(text)} is {total} tasks, but {self._said('world_size')}"
            self._refuse(("world_size", "local_world_size"), sentence, launcher.name)

    def _order(self, launcher: Launcher) -> None:
        """Refuse what cannot be: a rank outside its world, more processes on a node than there are."""
        for small, large, strict in (
            ("rank", "world_size", True),
            ("local_rank", "local_world_size", True),
            ("node_rank", "nnodes", True),
            ("local_world_size", "world_size", False),
            ("nnodes", "world_size", False),
        ):
            low, high = self.values.get(small), self.values.get(large)
            if low is None or high is None or low < high or (low == high and not strict):
                continue
            relation = "is not below" if strict else "is more than"
            self._refuse((small, large), f"{self._said(small)} {relation} {self._said(large)}", launcher.name)

    def _said(self, what: str) -> str:
        source = self.sources[what]
        return f"{source if source.isupper() else what}={self.values[what]}"

    def _place(self) -> tuple[bool, int | None]:
        """Whether the process has devices of its own by its launcher, and its index on the node."""
        known = self.values
        local_rank = known.get("local_rank")
        if self.launcher is None or self.launcher.name not in ("twinkle", "torchrun"):
            return False, local_rank
        if self.launcher.name == "twinkle":
            _, text = self.look("TWINKLE_LOCAL_INDEX") or ("", "")
            return True, integer(text)
        # torchrun's virtual local rank is 0 on every process; the place on the node follows from equal nodes.
        if (
            not {*FIELDS} <= {*known}
            or local_rank
            or known["world_size"] != known["nnodes"] * known["local_world_size"]
        ):
            return False, local_rank
        index = known["rank"] - known["node_rank"] * known["local_world_size"]
        virtual = 0 < index < known["local_world_size"]
        return virtual, index if virtual else local_rank

    def _missing(self, what: str) -> LauncherError:
        launcher = self.launcher or LAUNCHERS[0]
        said = ", ".join(self._said(known) for known in FIELDS if known in self.values) or "nothing else"
        names = " or ".join(getattr(launcher, what))
        subject = f"{names} is not set" if names else f"{what} is not told by {launcher.name}"
        remedy = "pass it, or start with torchrun"
        if launcher.kind == "torch":
            pods = what.startswith("local") or what in ("node_rank", "nnodes")
            remedy = f"pod-level variables? start with torchrun, or set {names}" if pods else f"set {names} too"
        return LauncherError(f"{subject}, with {said}: {remedy}", field=what, launcher=launcher.name)


def read(environ: Mapping[str, str] | None = None) -> Reading:
    """What the launcher's variables in a mapping (None: the environment) say, question by question."""
    return Reading(os.environ if environ is None else _mapping(environ))


def resolve(
    environ: Mapping[str, str] | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    local_world_size: int | None = None,
    node_rank: int | None = None,
    nnodes: int | None = None,
) -> LaunchRecord:
    """Who this process is, from a mapping of variables (None: the environment); arguments outrank variables.

    Refused when a variable is malformed, when two contradict each other, or when there is a world size but no rank.
    """
    passed = (rank, world_size, local_rank, local_world_size, node_rank, nnodes)
    given = {
        what: whole(value, what, LauncherError, least=int(what.endswith("size") or what == "nnodes"))
        for what, value in zip(FIELDS, passed, strict=True)
        if value is not None
    }
    return Reading(os.environ if environ is None else _mapping(environ), given).record()


def _mapping(environ: Any) -> Mapping[str, str]:
    if not isinstance(environ, Mapping):
        raise LauncherError(f"environ must be a mapping of variables, not {shown(environ)}")
    return environ


def integer(text: str) -> int | None:
    """The number that a variable holds, None when it is no whole number below 2**63."""
    digits = text.strip()
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else 2**63
    return number if number < 2**63 else None


def _set(found: tuple[str, int]) -> str:
    return f"{found[0]}={found[1]}"


def _task_count(text: str, node: int) -> tuple[int, int] | None:
    """The tasks of one node and of all of them, from a run-length list like `2(x3),1`."""
    tasks, total, nodes = None, 0, 0
    for entry in text.strip().split(","):
        count_text, times, rest = entry.partition("(x")
        count, repeats = integer(count_text), integer(rest.removesuffix(")")) if times else 1
        if count is None or repeats is None or (times and not rest.endswith(")")):
            return None
        if nodes <= node < nodes + repeats:
            tasks = count
        nodes, total = nodes + repeats, total + count * repeats
    return None if tasks is None else (tasks, total)
