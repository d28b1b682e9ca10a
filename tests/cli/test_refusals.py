"""Bad input: exit code 2 and one clear line, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Answer
from tests.support import LIMIT, clean_environment, run, run_python

ACTOR = ("--pp", 2, "--dp", 2, "--tp", 2)
FLOW = ("flow", "--to", "dp=2", "--batch", 8)
REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "no mesh": (("mesh",), "no mesh is given: give sizes (--dp --fsdp --tp"),
    "text for a size": (("mesh", "--tp", "two"), "Invalid value for '--tp': 'two' is not a whole number"),
    "text for a rank": (("rank", "x", *ACTOR), "Invalid value for 'RANK': 'x' is not a whole number"),
    "a size of 0": (("mesh", "--tp", 0), "tp_size"),
    "sizes that do not fit": (("mesh", "--tp", 2, "--world-size", 9), "world_size 9 is not divisible by 2"),
    "a rank outside": (("rank", 8, *ACTOR), "rank 8 is not in this mesh of 8 ranks"),
    "an unknown axis": (("groups", "foo", *ACTOR), 'unknown axis "foo"'),
    "an axis twice": (("groups", "tp,tp", *ACTOR), "tp"),
    "an unknown order": (("mesh", *ACTOR, "--order", "tp,xx"), "xx"),
    "no batch": (("slices", *ACTOR), "Missing option '--batch'"),
    "a negative batch": (("slices", *ACTOR, "--batch", -1), "-1"),
    "ranks on a node": (("mesh", *ACTOR, "--nproc-per-node", 0), "nproc_per_node must be an integer >= 1, not 0"),
    "an unknown command": (("mash",), "No such command 'mash'"),
    "an unknown option": (("mesh", "--ttp", 2), "--ttp"),
    "file and sizes": (("mesh", "--tp", 2, "--mesh", "m.json"), "give either --mesh FILE or sizes, not both"),
    "names without a file": (("mesh", "--tp", 2, "--names", "dp"), "--names is for a table of ranks in --mesh FILE"),
    "a missing file": (("mesh", "--mesh", "missing.json"), "missing.json: No such file or directory"),
    "another kind of file": (("mesh", "--mesh", "mesh.toml"), "mesh.toml: a file is named .json, .yaml, .yml or .npy"),
    "an empty spec": ((*FLOW, "--from", ""), "--from is empty; give axes and sizes"),
    "a spec without a size": ((*FLOW, "--from", "dp=4,tp"), "--from 'dp=4,tp': 'tp' is not an axis and its size"),
    "a spec with a name twice": ((*FLOW, "--from", "dp=4,dp=2"), "--from 'dp=4,dp=2': dp is given twice"),
    "a spec with an unknown axis": ((*FLOW, "--from", "qq=4"), "qq"),
    "a spec with an unknown option": ((*FLOW, "--from", "dp=4,qq_size=4"), "qq_size"),
    "another way to collect": (
        (*FLOW, "--from", "dp=4", "--collect-from", "mine"),
        "pp_last, pp_first, any, all, not 'mine'",
    ),
    "a worker across shards": ((*FLOW, "--from", "dp=4,gpus_per_worker=2"), "worker 0 owns positions [0, 1]"),
    "a negative flow": (("flow", "--from", "dp=4", "--to", "dp=2", "--batch", -3), "not -3"),
    "too many nodes": (("allocate", "groups.json", "--nodes", 10**9), "--nodes 1000000000"),
    "a page that cannot be written": (
        ("mesh", *ACTOR, "--html", "missing/page.html"),
        "missing/page.html: No such file",
    ),
    "too long a list": (("groups", "tp", "--dp", 2**25, "--json"), "33554432 ranks are more than the 16777216"),
}
FILES = {
    "m.json": "[0, 1]",
    "groups.json": "[]",
    "broken.json": "{",
    "broken.yaml": "a: [",
    "broken.npy": "no array",
    "words.json": '["a", "b"]',
    "keys.json": '{"dp": 2, "qq": 3}',
    "named.json": '{"mesh": [0, 1]}',
    "job.json": '{"nodes": []}',
    "group.json": '[{"name": "a", "ranks": 9, "device_type": "GPU"}]',
}
IN_FILES: dict[str, tuple[tuple[object, ...], str]] = {
    "broken JSON": (("mesh", "--mesh", "broken.json"), "broken.json is not JSON"),
    "broken YAML": (("mesh", "--mesh", "broken.yaml"), "broken.yaml is not YAML"),
    "a broken array": (("mesh", "--mesh", "broken.npy"), "broken.npy holds no array of ranks"),
    "ranks that are words": (("mesh", "--mesh", "words.json"), "whole numbers"),
    "an unknown size": (("mesh", "--mesh", "keys.json"), "keys.json describes no mesh"),
    "names for a mesh that has its own": (("mesh", "--mesh", "named.json", "--names", "dp"), "names its own axes"),
    "a job without groups": (("allocate", "job.json"), "job.json: a mapping has groups"),
    "groups that do not fit": (("allocate", "group.json"), "group 'a': rank 8 needs GPU node 1, only 1 available"),
}


@pytest.mark.parametrize("what", [*REFUSED, *IN_FILES])
def test_bad_input_ends_with_two_and_one_line(
    twinkle: Callable[..., Answer], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    words, said = {**REFUSED, **IN_FILES}[what]
    answer = twinkle(*words)
    assert (answer.code, answer.out) == (2, "")
    (line,) = answer.err.splitlines()
    assert line.startswith("twinkle: ")
    assert said in line


def test_without_words_the_command_shows_its_help_and_ends_with_two(twinkle: Callable[..., Answer]) -> None:
    answer = twinkle()
    assert answer.code == 2
    assert all(
        name in answer.out + answer.err for name in ("mesh", "rank", "groups", "slices", "flow", "env", "allocate")
    )


@pytest.mark.parametrize("name", ["mesh", "rank", "groups", "slices", "flow", "env", "allocate"])
def test_every_command_explains_itself_and_knows_json(twinkle: Callable[..., Answer], name: str) -> None:
    answer = twinkle(name, "--help", columns=120)
    assert answer.code == 0
    assert "--json" in answer.out


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_a_missing_library_is_one_line_that_names_the_extra(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; sys.stderr = sys.stdout\n"
        "from twinkle.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code)"
    )
    expected = f"twinkle: the command needs {missing}, which is not installed: pip install 'twinkle-mesh[cli]'\n2\n"
    assert run_python(code) == expected


@pytest.mark.parametrize(
    ("typed", "word", "completed"), [("twinkle gr", 1, "groups"), ("twinkle groups dp,t", 2, "dp,tp")]
)
def test_words_are_completed(typed: str, word: int, completed: str) -> None:
    shell = clean_environment(_TWINKLE_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(word))
    done = run([sys.executable, "-c", "from twinkle.cli import main; main()"], environment=shell)
    assert done.stdout.split() == [completed]


def test_a_command_loads_no_array_library_and_no_framework() -> None:
    code = (
        "import sys; from twinkle.cli.app import run\n"
        "run(['mesh', '--dp', '16384', '--tp', '8', '--nproc-per-node', '8'])\n"
        "run(['rank', '5', '--dp', '16384', '--tp', '8', '--batch', '100'])\n"
        "run(['groups', 'tp', '--dp', '16384', '--tp', '8'])\n"
        "run(['slices', '--batch', '100000', '--dp', '16384', '--tp', '8'])\n"
        "run(['flow', '--from', 'dp=4096', '--to', 'dp=16384,tp=8', '--batch', '100000'])\n"
        "print({'numpy', 'torch', 'ray', 'rich', 'yaml'} & set(sys.modules))"
    )
    assert run_python(code).splitlines()[-1] == "set()"


def test_the_command_runs_as_a_module_and_a_refusal_is_its_exit_code() -> None:
    command = [sys.executable, "-m", "twinkle.cli", "rank", "8", "--dp", "8"]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=LIMIT, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("twinkle: rank 8 is not in this mesh")
