import re

import pytest
from rich.console import Console

from bayesprop.errors import ConfigurationError
from bayesprop.experiments.experiment import SCALES
from bayesprop.experiments.listing import experiments, find, table


def test_every_experiment_has_all_scales_and_says_what_they_cost(root):
    found = experiments()
    assert len(found) > 0
    for name, experiment in found.items():
        assert re.fullmatch(r"[a-z][a-z0-9-]*", name)
        assert tuple(experiment.scales) == tuple(experiment.cost) == SCALES, name
        assert experiment.sources, name
        assert experiment.shows.endswith("."), name
        folder = root / "src" / "bayesprop" / "experiments" / name.replace("-", "_")
        text = (folder / "README.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {name}"), name


def test_every_experiment_has_parts_with_names_of_their_own():
    for experiment in experiments().values():
        for scale in SCALES:
            names = [part.name for part in experiment.parts(experiment.settings(scale))]
            assert len(set(names)) == len(names) > 0, experiment.name


def test_a_name_that_is_misspelt():
    with pytest.raises(ConfigurationError, match=r"there is no experiment 'table1'. Did you mean 'table-1'\?"):
        find("table1")


def test_the_list_says_what_there_is():
    console = Console(width=160)
    with console.capture() as captured:
        console.print(table())
    for name, experiment in experiments().items():
        assert name in captured.get()
        assert experiment.sources[0].split()[0] in captured.get()
