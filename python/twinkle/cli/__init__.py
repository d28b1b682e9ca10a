"""The `twinkle` command: what a mesh answers, without writing code."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command and ends the process: 0 for an answer, 2 for bad input, in one line on standard error."""
    try:
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        line = f"twinkle: the command needs {error.name}, which is not installed: pip install 'twinkle-mesh[cli]'"
        print(line, file=sys.stderr)
        raise SystemExit(2) from None
    from twinkle.cli.app import run

    raise SystemExit(run(sys.argv[1:]))
