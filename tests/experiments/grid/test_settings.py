import json
import math

from bayesprop.experiments.grid.settings import GRID, PAPER, SCALES
from bayesprop.training.sweeping.grid import settings_of


def test_the_grid_of_the_paper():
    assert len(settings_of(GRID)) == 324
    assert GRID["prior.scale2"] == [math.exp(-6), math.exp(-7), math.exp(-8)]
    assert (PAPER.epochs, PAPER.batch_size, PAPER.width, PAPER.temperature) == (600, 128, 400, 1.0)


def test_smaller_grids_have_the_same_axes():
    for settings in SCALES.values():
        assert settings.grid.keys() == GRID.keys()
        assert json.loads(json.dumps(settings.grid)) == settings.grid
