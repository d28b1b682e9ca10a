"""The package as a stranger gets it: what the wheel holds, that it installs alone, and what importing it loads."""

from __future__ import annotations

import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from typing import TYPE_CHECKING

import pytest

from tests.support import ROOT, maturin, run, run_python

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, GROUPS = SETTINGS["project"], SETTINGS["dependency-groups"]
# Written by `make dev`: the wheel of NumPy, so that the empty environment needs no network.
WHEELHOUSE = ROOT / ".venv" / "wheelhouse"
LIBRARIES = {"numpy", "pandas", "ray", "rich", "scipy", "torch", "typer", "yaml"}

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from what `make dev` has compiled already."""
    out = tmp_path_factory.mktemp("wheel")
    run([maturin(), "build", "--release", "--locked", "--interpreter", sys.executable, "--out", out], timeout=3000)
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """The wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"twinkle_mesh-{VERSION}.dist-info/METADATA").decode())


@pytest.fixture(scope="module")
def stranger(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel, what it requires, and nothing else."""
    home = tmp_path_factory.mktemp("stranger")
    venv.create(home, with_pip=True, symlinks=True)
    python = home / "bin" / "python"
    offline: list[str | Path] = ["--no-index", "--find-links", WHEELHOUSE] if WHEELHOUSE.is_dir() else []
    run([python, "-m", "pip", "install", "--quiet", *offline, wheel])
    return python


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter loads for one statement."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    return set(run_python(code).split())


def test_one_wheel_serves_every_python_from_the_oldest_supported(wheel: Path) -> None:
    assert wheel.name.startswith(f"twinkle_mesh-{VERSION}-cp311-abi3-")


def test_the_wheel_holds_the_package_its_stub_and_its_licence_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        licence = archive.read(f"twinkle_mesh-{VERSION}.dist-info/licenses/LICENSE").decode()
    assert {name.split("/")[0] for name in names} == {"twinkle", f"twinkle_mesh-{VERSION}.dist-info"}
    assert {"twinkle/_core.abi3.so", "twinkle/_core.pyi", "twinkle/py.typed"} <= names
    assert licence == (ROOT / "LICENSE").read_text(encoding="utf-8")
    sources = {path.relative_to(ROOT / "python").as_posix() for path in (ROOT / "python").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources
    pages = {path.relative_to(ROOT / "python").as_posix() for path in (ROOT / "python").rglob("assets/*")}
    assert pages <= names


def test_the_metadata_says_what_the_project_says(metadata: Message) -> None:
    assert metadata["Name"] == "twinkle-mesh"
    assert metadata["Version"] == VERSION
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Summary"] == PROJECT["description"]


def test_only_numpy_is_required_unless_an_extra_is_asked_for(metadata: Message) -> None:
    required = metadata.get_all("Requires-Dist", [])
    assert [line for line in required if "extra ==" not in line] == PROJECT["dependencies"] == ["numpy>=2.0"]
    # A group of this name would be installed unasked by `maturin develop`, torch and all.
    assert "dev" not in GROUPS
    assert metadata.get_all("Provides-Extra", []) == sorted(PROJECT["optional-dependencies"])


def test_the_wheel_brings_numpy_into_an_empty_environment_and_nothing_else(stranger: Path) -> None:
    listed = run([stranger, "-m", "pip", "list", "--format=freeze"]).stdout.split()
    assert {line.split("==")[0] for line in listed} - {"pip", "setuptools"} == {"numpy", "twinkle-mesh"}


def test_the_installed_package_has_the_version_of_the_workspace(stranger: Path) -> None:
    code = "import importlib.metadata, twinkle; print(twinkle.__version__, importlib.metadata.version('twinkle-mesh'))"
    assert run([stranger, "-I", "-c", code]).stdout.split() == [VERSION, VERSION]


def test_the_installed_package_answers_without_torch_or_ray(stranger: Path) -> None:
    code = """
import twinkle
mesh = twinkle.DeviceMesh.from_sizes(pp_size=2, dp_size=2, tp_size=2)
print(twinkle.__file__)
print(mesh.coordinates(5), list(mesh.group_of("dp", rank=5)), mesh.coords_of([7]).tolist())
"""
    home, answers = run([stranger, "-I", "-c", code]).stdout.splitlines()
    assert home.startswith(str(stranger.parent.parent))
    assert answers == "{'pp': 1, 'dp': 0, 'tp': 1} [5, 7] [[1, 1, 1]]"


def test_a_type_checker_reads_the_installed_package(stranger: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("from twinkle import DeviceMesh\nreveal_type(DeviceMesh.from_sizes(dp_size=2).world_size)\n")
    # Away from the repository, so that only the installed package can answer.
    mypy = [sys.executable, "-m", "mypy", "--strict", f"--python-executable={stranger}", "--config-file="]
    assert 'Revealed type is "int"' in run([*mypy, program], folder=tmp_path).stdout


def test_importing_twinkle_loads_nothing_but_itself() -> None:
    assert loaded_by("import twinkle") <= {"twinkle", "__future__"}


def test_type_checkers_are_told_every_public_name() -> None:
    import twinkle

    told = (ROOT / "python" / "twinkle" / "__init__.py").read_text(encoding="utf-8").split("if TYPE_CHECKING:")[1]
    assert {name for name in twinkle.__all__ if f" as {name}\n" not in told} == set()


@pytest.mark.parametrize("name", ["DeviceMesh", "DeviceGroup", "errors", "__version__"])
def test_touching_a_name_loads_no_array_or_tensor_library(name: str) -> None:
    heavy = {module for module in loaded_by(f"from twinkle import {name}") if module.split(".")[0] in LIBRARIES}
    assert heavy == set()


def test_every_public_name_is_listed_and_loads_and_unknown_ones_are_refused() -> None:
    import twinkle

    assert set(twinkle.__all__) <= set(dir(twinkle))
    assert all(getattr(twinkle, name) is not None for name in twinkle.__all__)
    with pytest.raises(AttributeError, match="module 'twinkle' has no attribute 'DeviceMush'"):
        _ = twinkle.DeviceMush  # type: ignore[attr-defined]


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    run([maturin(), "sdist", "--out", tmp_path])
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    manifest = tmp_path / f"twinkle_mesh-{VERSION}" / "rust" / "python" / "Cargo.toml"
    build: list[str | Path] = ["build", "--release", "--locked", "--manifest-path", manifest]
    run([maturin(), *build, "--target-dir", tmp_path / "target", "--out", tmp_path / "dist"], timeout=3000)
    (built,) = (tmp_path / "dist").iterdir()
    assert built.name == wheel.name
    with zipfile.ZipFile(built) as archive, zipfile.ZipFile(wheel) as expected:
        assert archive.namelist() == expected.namelist()
