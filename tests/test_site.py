"""The documentation: it builds strictly and without a network, and its pictures are those that the code draws."""

from __future__ import annotations

import importlib.util
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.documents import blocks
from tests.support import ROOT, clean_environment, run

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages; a warning of Sphinx, or anything that asks for a network, ends the build."""
    out = tmp_path_factory.mktemp("site")
    offline = clean_environment(http_proxy="http://127.0.0.1:9", https_proxy="http://127.0.0.1:9", no_proxy="")
    places = [f"-d{out / 'trees'}", str(DOCS), str(out / "html")]
    run([sys.executable, "-m", "sphinx", "-W", "--keep-going", "-E", "-q", "-b", "html", *places], environment=offline)
    return out / "html"


class Links(HTMLParser):
    """Everything that a page loads or links to, and the places in it that can be linked to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: set[str] = set()
        self.linked: set[str] = set()
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.places.add(given["id"])
        for name in ("src", "href"):
            if name in given:
                (self.linked if tag == "a" else self.loaded).add(given[name])


def test_every_page_is_built_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for source in DOCS.glob("*.md"):
        page = Links(site / f"{source.stem}.html")
        loaded = {link for link in page.loaded if not link.startswith(("data:", "#"))}
        assert loaded
        assert [link for link in loaded if urlsplit(link).netloc] == []
        missing = [link for link in loaded if not (site / urlsplit(link).path).is_file()]
        assert missing == []
    for style in site.glob("_static/**/*.css"):
        assert not re.search(r"@import|url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style.name


def test_every_link_between_pages_leads_somewhere(site: Path) -> None:
    pages = {page.name: Links(page) for page in site.glob("*.html")}
    for name, page in pages.items():
        for link in page.linked:
            parts = urlsplit(link)
            if parts.netloc or parts.path.startswith(("_sources", "mailto")) or parts.scheme:
                continue
            target = parts.path or name
            assert target in pages or (site / target).exists(), f"{name} links to {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in {*pages[target].places, ""}, f"{name} links to {link}"


@pytest.mark.parametrize("name", ["DeviceMesh", "from_sizes", "group_of", "Layout", "even", "allocate", "RankError"])
def test_the_contract_has_what_the_docstrings_say(site: Path, name: str) -> None:
    assert f">{name}<" in (site / "contract.html").read_text(encoding="utf-8")


def test_the_pictures_are_those_that_the_code_draws() -> None:
    spec = importlib.util.spec_from_file_location("drawings", DOCS / "drawings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    drawn = {f"{name}.svg": svg + "\n" for name, svg in module.drawings().items()}
    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "drawings").iterdir()}
    assert kept == drawn, "python docs/drawings.py writes what is drawn now"
    shown = set(
        re.findall(r"\(drawings/([\w-]+\.svg)\)", "".join(page.read_text("utf-8") for page in DOCS.glob("*.md")))
    )
    assert shown == set(drawn)


def test_the_chinese_readme_shows_and_runs_the_same_as_the_english_one() -> None:
    english, chinese = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md"))
    assert [block.text for block in blocks(chinese)] == [block.text for block in blocks(english)]
    assert len(re.findall(r"^#+ ", chinese, re.MULTILINE)) == len(re.findall(r"^#+ ", english, re.MULTILINE))
    assert set(re.findall(r"\]\(([^)]+)\)", english)) - {"README.zh.md"} <= set(re.findall(r"\]\(([^)]+)\)", chinese))
