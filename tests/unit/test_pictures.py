"""The documentation's pictures: those that are kept are what is drawn of the results that are kept."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from aotcuda.tools.check import gpus, predict
from support import manifests

ROOT = Path(__file__).parents[2]
KEPT = sorted(path.stem for path in (ROOT / "docs" / "pictures").glob("*.svg"))


@pytest.fixture(scope="module")
def plot():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        yield importlib.import_module("plot")
        for name in ("plot", "diagrams", "drawing"):
            sys.modules.pop(name)


def test_pictures_are_those_that_are_drawn(plot) -> None:
    drawn = plot.drawn()
    assert sorted(drawn) == KEPT
    for name, text in drawn.items():
        kept = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        assert kept == text, f"{name}: run python bench/plot.py"


@pytest.mark.parametrize("name", KEPT)
def test_a_picture_is_shown_says_what_it_shows_and_has_nothing_outside_its_frame(name: str) -> None:
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    assert any(f"pictures/{name}.svg)" in page.read_text() for page in pages)
    root = ET.parse(ROOT / "docs" / "pictures" / f"{name}.svg").getroot()
    assert root.get("aria-label")
    width, height = float(root.get("width")), float(root.get("height"))
    for item in root.iter():
        x, y = float(item.get("x") or 0), float(item.get("y") or 0)
        assert 0 <= x <= width
        assert 0 <= y <= height
        if item.tag.endswith("rect") and item.get("width") != "100%":
            assert x + float(item.get("width")) <= width
            assert y + float(item.get("height")) <= height


def test_the_picture_of_the_choice_is_what_the_command_predicts(plot) -> None:
    """`aotcuda check` is asked for each GPU; of the picture the filled cells are read."""
    text = (ROOT / "docs" / "pictures" / "choice.svg").read_text()
    filled = re.findall(r'<rect x="([\d.]+)" y="(\d+)" [^>]*class="(own|base)"', text)[: len(plot.diagrams.GPUS)]
    images = [manifests.image_record(name, "ptx" if name[0] == "c" else "sass", b"") for name in plot.diagrams.ARCH]
    whole = manifests.whole(module="m", images=images, toolchain={"cuda": "13.0"})
    for (x, _, kind), (_, capability) in zip(filled, plot.diagrams.GPUS, strict=True):
        cell = predict.predict(whole, gpus.Gpu("a GPU", capability), gpus.Driver("a driver", (13, 9)))
        assert plot.diagrams.ARCH[(int(float(x)) - 250) // 100] == cell.image
        assert (kind == "base") == (cell.takes == "ptx")
