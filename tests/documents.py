"""Reads a Markdown file into what a reader could run: Python blocks, console blocks, and the output shown for them.

Run as a program (`python -m tests.documents FILE`), it executes the file's Python blocks in one namespace.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCE = re.compile(
    r"(?:^ *<!-- not run: *(?P<reason>.*?) *-->\n+)?^(?P<indent> *)(?P<ticks>```+)(?P<language>\w*)[^\n]*\n"
    r"(?P<text>.*?)^(?P=indent)(?P=ticks)[ ]*$",
    flags=re.MULTILINE | re.DOTALL,
)
CHECKER = doctest.OutputChecker()
ELLIPSIS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
#: Lines that a daemon of Ray adds to what a driver prints, about the machine it is on.
RAY_LOG = re.compile(r"^(?:\x1b\[\d+m)?\((?:raylet|autoscaler|gcs_server)\b.*\n", flags=re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block of a document."""

    language: str
    text: str
    #: The line of the file where `text` begins, counted from 1.
    line: int
    #: Why the block is not run, None if it is.
    reason: str | None
    #: What the document shows as printed by this block: the `text` block that directly follows it.
    output: str | None = None


def blocks(markdown: str) -> list[Block]:
    """Every fenced block, in order; a `text` block directly below a Python block is that block's output."""
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(markdown):
        language, text = match["language"], match["text"]
        if match["indent"]:
            text = re.sub(f"^{match['indent']}", "", text, flags=re.MULTILINE)
        if (
            language == "text"
            and found
            and found[-1].language == "python"
            and not markdown[end : match.start()].strip()
        ):
            found[-1] = Block(**{**vars(found[-1]), "output": text})
        else:
            found.append(Block(language, text, markdown.count("\n", 0, match.start("text")) + 1, match["reason"]))
        end = match.end()
    return found


def commands(console: str) -> list[tuple[str, str]]:
    """The commands of a console block (`$ ...`, continued with a backslash), each with the output shown below it."""
    parts = re.split(r"^\$ ", console.replace("\\\n", ""), flags=re.MULTILINE)[1:]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def same_output(shown: str, printed: str) -> bool:
    """Whether the printed text is the shown one; `...` stands for anything, runs of spaces are alike."""
    return CHECKER.check_output(shown, printed, ELLIPSIS)


def execute(path: Path) -> None:
    """Runs the Python blocks of one file in one namespace; a traceback names the line of the document."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language != "python" or block.reason is not None:
            continue
        if block.text.lstrip().startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(block.text, namespace, path.name, str(path), block.line - 1)
            if doctest.DocTestRunner(optionflags=ELLIPSIS).run(test, clear_globs=False).failed:
                raise SystemExit(f"{path}, line {block.line}: not what the document shows")
            namespace.update(test.globs)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, str(path), "exec", dont_inherit=True), namespace)
        found = RAY_LOG.sub("", printed.getvalue())
        if block.output is not None and not same_output(block.output, found):
            raise SystemExit(f"{path}, line {block.line}: shown\n{block.output}\nbut printed\n{found}")


if __name__ == "__main__":
    execute(Path(sys.argv[1]))
