"""The page of a flow, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from twinkle import DeviceMesh
from twinkle.plan import Layout
from twinkle.show.flow import Side
from twinkle.show.flow_page import flow_page, flow_svg
from twinkle.show.page import filled

if TYPE_CHECKING:
    from tests.show.conftest import Browser

SAMPLER = Side(DeviceMesh.from_sizes(dp_size=4))
ACTOR = Side(DeviceMesh.from_sizes(pp_size=2, dp_size=2, tp_size=2))


def lit(browser: Browser, kind: str) -> list[str]:
    """The bands or shards that are lit, by number."""
    attribute = "data-move" if kind == ".band" else "data-shard"
    return [str(element.get_attribute(attribute)) for element in browser.all(f"{kind}[data-lit]")]


def test_pointing_at_a_shard_lights_what_it_sends_or_gets(chromium: Browser) -> None:
    chromium.open(flow_page(10, SAMPLER, ACTOR))
    chromium.point_at('.shard[data-side="source"][data-shard="1"]')
    assert lit(chromium, ".band") == ["1", "2"]
    assert lit(chromium, ".shard") == ["1", "0", "1"]
    words = chromium.one("#place").text
    assert "rows 3-4: shard 1 (worker 1) to shard 0 (workers 0-1, 4-5)" in words
    assert "row 5: shard 1 (worker 1) to shard 1 (workers 2-3, 6-7)" in words
    chromium.point_away()
    assert lit(chromium, ".band") == []
    assert chromium.complaints() == []


def test_a_row_is_found_by_its_number(chromium: Browser) -> None:
    chromium.open(flow_page(10, SAMPLER, ACTOR))
    chromium.type("/", "7\n")
    assert lit(chromium, ".band") == ["3"]
    assert chromium.one("#which").text == "rows 6-7"
    box = chromium.one("#row")
    box.clear()
    box.send_keys("10\n")
    assert chromium.one("#which").text == "10 is no row of 10"
    assert lit(chromium, ".band") == []


def test_keys_walk_from_band_to_band(chromium: Browser) -> None:
    chromium.open(flow_page(10, SAMPLER, ACTOR))
    chromium.run("document.querySelector('.band').focus()")
    chromium.type("\ue015", "\ue015")
    assert chromium.one("#which").text == "row 5"
    chromium.type("\ue013", "\n", "\ue00c")
    assert chromium.one("#which").text == "No rows chosen"


def test_bands_leave_and_arrive_inside_their_shards(chromium: Browser) -> None:
    chromium.open(flow_page(250, Side(DeviceMesh.from_sizes(dp_size=24)), Side(DeviceMesh.from_sizes(dp_size=10))))
    found: Any = chromium.run("""
      const box = (side, shard) =>
        document.querySelector(`[data-side=${side}][data-shard="${shard}"] rect`).getBoundingClientRect();
      return bands.map((band, place) => {
        const path = band.getBoundingClientRect();
        const ends = [box("source", moves[place].source), box("target", moves[place].target)];
        const top = Math.min(...ends.map((end) => end.top)), bottom = Math.max(...ends.map((end) => end.bottom));
        return path.top >= top - 1 && path.bottom <= bottom + 1 && path.height > 0;
      });
    """)
    assert len(found) == len(Layout.even(250, 24).reshard(Layout.even(250, 10)))
    assert all(found)


def test_shards_beyond_are_counted_and_their_rows_said_to_be_folded(chromium: Browser) -> None:
    chromium.open(
        flow_page(25_000, Side(DeviceMesh.from_sizes(dp_size=2400)), Side(DeviceMesh.from_sizes(dp_size=1000)))
    )
    assert len(chromium.all('.shard[data-side="source"]')) == 32
    assert "2368 more shards" in chromium.one("#picture").text
    chromium.one("#row").send_keys("20000\n")
    assert chromium.one("#which").text == "Row 20000 is folded away"


@pytest.mark.parametrize("batch", [0, 1, 2, 10])
def test_the_picture_alone_is_well_formed(batch: int) -> None:
    root = ElementTree.fromstring(flow_svg(batch, SAMPLER, ACTOR))
    bands = list(root.iter("{http://www.w3.org/2000/svg}path"))
    assert len(bands) == {0: 0, 1: 1, 2: 2, 10: 5}[batch]


def test_texts_from_outside_stay_texts(chromium: Browser) -> None:
    wrong = "</script><script>document.title = 'in'</script><b>"
    chromium.open(filled(title=wrong, facts=wrong, body="", data={"moves": [], "batch": wrong}, script="page.css"))
    assert chromium.one("h1").text == wrong
    assert chromium.one(".facts").text == wrong
    assert chromium.run("return document.title") == wrong
    assert chromium.run("return JSON.parse(document.getElementById('data').textContent).batch") == wrong
    assert chromium.all("b") == []
    chromium.complaints()
