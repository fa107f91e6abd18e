"""What is run at each scale."""

import json
from dataclasses import asdict

import pytest

from bayesprop.experiments.regression.settings import PAPER, SCALES


@pytest.mark.parametrize("scale", SCALES)
def test_settings_are_plain(scale):
    assert json.dumps(asdict(SCALES[scale]), allow_nan=False)


def test_source_001_has_a_thousand_rows():
    assert PAPER.source_rows == 1000
    assert PAPER.hmc_chains >= 4
