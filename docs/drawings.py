"""Draws the pictures of these pages into `drawings/`: `python docs/drawings.py`; the tests compare them."""

from __future__ import annotations

from pathlib import Path

from twinkle import DeviceMesh
from twinkle.show.flow import Side
from twinkle.show.flow_page import flow_svg

FOLDER = Path(__file__).with_name("drawings")


def drawings() -> dict[str, str]:
    """Every picture by its name."""
    sampler = DeviceMesh.from_sizes(dp_size=4)
    actor = DeviceMesh.from_sizes(pp_size=2, dp_size=2, tp_size=2)
    replicas_together = DeviceMesh.from_sizes(pp_size=2, dp_size=2, tp_size=2, order=["dp", "pp", "tp"])
    nodes = DeviceMesh.from_sizes(pp_size=2, dp_size=4, tp_size=8)
    hybrid = DeviceMesh.from_sizes(fsdp_size=3, dp_size=2)
    sequence = DeviceMesh.from_sizes(dp_size=8, ulysses_size=2)
    return {
        "actor-tp": actor.to_svg(color_by="tp"),
        "actor-data": actor.to_svg(color_by="data"),
        "actor-dp-outside": replicas_together.to_svg(color_by="data"),
        "nodes": nodes.to_svg(color_by="dp", nproc_per_node=8),
        "hybrid": hybrid.to_svg(color_by="data"),
        "ulysses": sequence.to_svg(color_by="data"),
        "flow": flow_svg(10, Side(sampler), Side(actor)),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, svg in drawings().items():
        (FOLDER / f"{name}.svg").write_text(svg + "\n", encoding="utf-8")
