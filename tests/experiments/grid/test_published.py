from bayesprop.experiments.grid.published import EPOCHS_PER_HOUR, SETTINGS
from bayesprop.experiments.grid.settings import GRID
from bayesprop.training.sweeping.grid import settings_of


def test_what_is_published():
    assert SETTINGS.value == len(settings_of(GRID))
    assert EPOCHS_PER_HOUR.value == 75
