"""What is written is run: the Python and console blocks of every document, and every `>>>` in a docstring."""

from __future__ import annotations

import doctest
import importlib
import shlex
import sys
from pathlib import Path

import pytest

from tests.documents import ELLIPSIS, blocks, commands, same_output
from tests.support import ROOT, clean_environment, run

DOCUMENTS = [path for name in ("*.md", "docs/**/*.md", "benches/*.md") for path in sorted(ROOT.glob(name))]
MODULES = [path for path in sorted((ROOT / "python" / "twinkle").rglob("*.py")) if ">>>" in path.read_text("utf-8")]
# Commands that install, build or need a clone; whoever runs these tests has just run them.
NOT_REPEATED = ("cargo", "cd", "git", "make", "pip", "sudo")

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def module_name(path: Path) -> str:
    """The name by which a file of the package is imported."""
    return ".".join(path.relative_to(ROOT / "python").with_suffix("").parts).removesuffix(".__init__")


@each_document
def test_python_blocks_run_and_print_what_is_shown(document: Path) -> None:
    run([sys.executable, "-m", "tests.documents", document])


@each_document
def test_console_blocks_print_what_is_shown(document: Path) -> None:
    for block in blocks(document.read_text(encoding="utf-8")):
        if block.language != "console" or block.reason is not None:
            continue
        assert commands(block.text), f"{document.name}, line {block.line}: a console block without a `$ ` line"
        for command, shown in commands(block.text):
            if shlex.split(command)[0] in NOT_REPEATED:
                continue
            path = f"{Path(sys.executable).parent}:{clean_environment()['PATH']}"
            printed = run(["bash", "-c", command], environment=clean_environment(PATH=path)).stdout
            where = f"{document.name}, line {block.line}: `{command}` printed\n{printed}\nbut shown is\n{shown}"
            assert not shown or same_output(shown, printed), where


@each_document
def test_a_block_is_left_out_only_for_a_reason(document: Path) -> None:
    assert all(block.reason is None or block.reason for block in blocks(document.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", [module_name(path) for path in MODULES])
def test_docstrings_show_what_happens(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_block_knows_its_line_its_reason_and_its_output() -> None:
    text = "a\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n<!-- not run: needs a GPU -->\n```python\nx\n```\n"
    first, second = blocks(text)
    assert (first.text, first.line, first.output, first.reason) == ("print(1)\n", 4, "1\n", None)
    assert (second.text, second.line, second.output, second.reason) == ("x\n", 13, None, "needs a GPU")


def test_a_console_block_is_commands_and_their_output() -> None:
    assert commands("$ a b\n1\n2\n$ c \\\n  d\n") == [("a b", "1\n2\n"), ("c   d", "")]


@pytest.mark.parametrize("wrong", ["```python\nraise ValueError\n```\n", "```python\nprint(1)\n```\n```text\n2\n```\n"])
def test_a_document_that_is_wrong_fails(wrong: str, tmp_path: Path) -> None:
    document = tmp_path / "wrong.md"
    document.write_text(wrong)
    with pytest.raises(AssertionError, match=r"wrong\.md.* line"):
        run([sys.executable, "-m", "tests.documents", document])
