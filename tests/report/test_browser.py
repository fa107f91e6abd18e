"""Pages in a real browser: they load without a word in the console, and everything is there, light, dark and narrow.

What a page holds is tested without a browser in the other files; this one runs where Chromium or Chrome is installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import matplotlib.image
import numpy as np
import pytest

import bayesprop as bp
from bayesprop.report.drawing import PALETTE

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((path for path in map(shutil.which, NAMES) if path), None)
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--enable-logging=stderr",
]
SHADES = {"light": 1, "dark": 0}

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """Run the browser on a page; what it prints, and what it says in its log."""

    def run(page, *arguments):
        profile = tmp_path_factory.mktemp("profile")
        command = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", *arguments, page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout, done.stderr

    return run


@pytest.fixture
def page(class_posterior, blobs, tmp_path):
    scores = bp.decisions.pruning_curve(class_posterior, blobs, (0.0, 0.5, 0.9), draws=5)
    foreign = {"turned": blobs[0].flip(1)}
    return bp.report.write(class_posterior, blobs, tmp_path / "page.html", foreign=foreign, pruning=scores, draws=20)


def test_a_page_loads_and_everything_is_there(page, browse):
    text, log = browse(page, "--dump-dom")
    assert "CONSOLE" not in log, log
    assert len(re.findall(r'<svg class="plot"', text)) == 9
    assert len(re.findall(r"<table", text)) == 5
    assert len(re.findall(r"<img ", text)) > 20
    assert text.count("<section>") == 9


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("shade", SHADES)
def test_a_page_has_the_colours_that_are_asked_for(page, browse, tmp_path, shade, width):
    """The paper is light or dark, and the ink of words and figures is on it; nothing is wider than the window."""
    shot = tmp_path / "shot.png"
    setting = f"--blink-settings=preferredColorScheme={SHADES[shade]}"
    _, log = browse(page, f"--screenshot={shot}", f"--window-size={width},1600", setting)
    assert "CONSOLE" not in log, log
    pixels = matplotlib.image.imread(shot)[..., :3]
    assert pixels.shape[:2] == (1600, width)
    paper = pixels[5, 5].mean()
    assert paper > 0.9 if shade == "light" else paper < 0.2
    ink = PALETTE["ink"][SHADES[shade] == 0]
    colour = np.array([int(ink[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    assert int((np.abs(pixels - colour).max(axis=-1) < 0.02).sum()) > 200, "words in the colour of ink"
    assert float(np.abs(pixels[:, -3:] - pixels[5, 5]).max()) < 0.02, "the margin at the right is empty"


def test_a_page_can_be_printed(page, browse, tmp_path):
    paper = tmp_path / "page.pdf"
    browse(page, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    assert paper.read_bytes().startswith(b"%PDF")
    assert paper.stat().st_size > 20_000
