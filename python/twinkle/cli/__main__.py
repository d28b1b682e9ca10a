"""`python -m twinkle.cli` is the `twinkle` command."""

from __future__ import annotations

from twinkle.cli import main

main()
