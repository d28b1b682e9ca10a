"""Importing the device side costs nothing: no torch, Ray or NumPy comes in, whatever is asked that does not bind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import twinkle.platform
from tests.support import LIMIT


def loaded(script: str) -> list[str]:
    """The modules that a fresh process has loaded after a script, beyond those it starts with."""
    lines = (
        f"import sys, json\nbefore = set(sys.modules)\n{script}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", lines], env=env, capture_output=True, text=True, timeout=LIMIT, check=True
    )
    answer: list[str] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(
    "script",
    [
        "import twinkle.platform",
        "from twinkle.platform import *",
        "from twinkle import Platform, DeviceGroup, Node, allocate",
        "from twinkle import Platform; Platform.get_rank(); Platform.get_local_device(); Platform.bind('cpu')",
        "from twinkle import DeviceGroup, Node, allocate\n"
        "allocate([DeviceGroup('a', 2, 'npu')], 8, [Node('n', 'npu', [0, 1])])",
    ],
)
def test_nothing_heavy_comes_in(script: str) -> None:
    assert not {"torch", "ray", "numpy"} & {name.partition(".")[0] for name in loaded(script)}


def test_asking_for_a_rank_loads_no_tables() -> None:
    modules = loaded("import os; os.environ.pop('RANK', None)\nfrom twinkle.platform import Platform")
    assert [name for name in modules if name.startswith("twinkle.platform")] == [
        "twinkle.platform",
        "twinkle.platform.platform",
    ]


def test_every_name_that_is_offered_loads_and_an_unknown_one_is_an_attribute_error() -> None:
    for name in twinkle.platform.__all__:
        value: Any = getattr(twinkle.platform, name)
        assert value is not None
        assert name in dir(twinkle.platform)
    with pytest.raises(AttributeError, match="nowhere"):
        _ = twinkle.platform.nowhere
