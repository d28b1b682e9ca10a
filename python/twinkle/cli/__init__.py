"""The `twinkle` command: what a mesh answers, without writing code."""

from __future__ import annotations

import sys

__all__ = ["main"]

#: What the extra `cli` brings, and what these bring themselves.
_EXTRA = ("typer", "rich", "click")


def main() -> None:
    """Runs the command and ends the process: 0 for an answer, 2 for bad input, in one line on standard error."""
    try:
        from twinkle.cli.app import run

        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _EXTRA:
            raise
        line = f"twinkle: the command needs {name}, which is not installed: pip install 'twinkle-mesh[cli]'"
        print(line, file=sys.stderr)
        code = 2
    raise SystemExit(code)
