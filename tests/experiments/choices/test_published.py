from bayesprop.experiments.choices.published import DIFFERENCES, ERRORS, NOISE
from bayesprop.experiments.choices.settings import VARIANTS


def test_what_the_source_found():
    assert (ERRORS["base"].value, ERRORS["gaussian"].value, NOISE.value) == (2.03, 1.69, 0.1)
    assert DIFFERENCES["kl-geometric"].value == -0.3
    assert round(ERRORS["gaussian"].value - ERRORS["base"].value, 2) == DIFFERENCES["gaussian"].value
    assert DIFFERENCES.keys() | ERRORS.keys() <= VARIANTS.keys()
