import json
import math

from bayesprop.experiments.choices.settings import BASE, PAPER, SCALES, VARIANTS


def test_the_base_is_the_source():
    assert (PAPER.width, PAPER.epochs, PAPER.batch_size, PAPER.draws, PAPER.seeds) == (400, 600, 100, 10, 5)
    assert BASE["prior.scale2"] == math.exp(-6)
    assert BASE["samples"] == 2


def test_every_variant_changes_something_of_the_base():
    for name, (question, answer, changes) in VARIANTS.items():
        assert question
        assert answer
        assert (changes == {}) == (name == "base")
        assert all(key in BASE or key == "prior.scale" for key in changes), name
        assert all(BASE.get(key) != value for key, value in changes.items()), name


def test_every_scale_has_the_base():
    for settings in SCALES.values():
        assert settings.variants[0] == "base"
        assert set(settings.variants) <= VARIANTS.keys()
        assert json.loads(json.dumps(settings.base)) == settings.base
