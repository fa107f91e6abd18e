"""Memory is said before it is spent, and bounded."""

from __future__ import annotations

import pytest
import torch

from bayesprop.data import as_data
from bayesprop.errors import MemoryBudgetError
from bayesprop.training.sweeping.budget import available, bytes_each, outputs_per_row, plan, size
from bayesprop.training.sweeping.groups import grouped


@pytest.fixture
def race(members, model, pair, held_out):
    def make(settings):
        made, found = model(), members(settings)
        return found, grouped(found, made, as_data(pair()), as_data(held_out))

    return make


def test_outputs_of_all_layers_count(model, pair):
    assert outputs_per_row(model(), pair()[0]) == 4 + 4 + 1


def test_what_one_setting_holds(race):
    found, (one, two) = race([{"samples": 1}, {"samples": 2}])
    columns, rows = one.model.layout.size, 8
    assert found[0].setup.method.memory(one.model, 1, rows) == 8 * (6 + 2) * columns
    assert bytes_each(one) == 8 * (6 + 5 * 2) * columns + 8 * rows * (3 + 2 * 9)
    assert bytes_each(two) == 8 * (6 + 5 * 4) * columns + 8 * rows * (3 + 4 * 9)


def test_populations_are_as_large_as_fits_and_equal_in_size(race):
    found, groups = race([{"learning_rate": 0.01 * (i + 1)} for i in range(7)])
    waiting, each = 7 * groups[0].state_bytes, bytes_each(groups[0])
    made = plan(groups, found, waiting + 3 * each)
    assert [[member.number for member in wave] for _, wave in made.waves] == [[0, 1], [2, 3], [4, 5, 6]]
    assert (made.needed, made.waiting, made.groups) == (3 * each, waiting, 1)
    text = made.describe()
    assert text.startswith("7 settings of one structure, at most 3 at a time in 3 populations: up to ")
    assert size(waiting) in text


def test_on_a_cpu_a_population_lives_in_the_cache(race, monkeypatch):
    from bayesprop.training.sweeping import budget

    found, groups = race([{"learning_rate": 0.01 * (i + 1)} for i in range(12)])
    for cache, most in ((8 * bytes_each(groups[0]), 6), (0, 4)):
        monkeypatch.setattr(budget, "CACHE", cache)
        made = plan(groups, found, 1 << 30)
        assert {len(wave) for _, wave in made.waves} == {most}


def test_those_that_have_left_the_race_cost_nothing(race):
    found, groups = race([{"samples": s, "seed": i} for s in (1, 2) for i in range(3)])
    for number in (0, 1, 2, 4):
        found[number].drop("dropped")
    racing = [member for member in found if member.alive]
    made = plan(groups, racing, 1 << 30)
    assert [[member.number for member in wave] for _, wave in made.waves] == [[3, 5]]
    assert made.waiting == 2 * groups[1].state_bytes
    assert "2 settings of one structure, at most 2 at a time in one population" in made.describe()


def test_a_budget_for_less_than_one_setting_is_refused(race):
    found, groups = race([{"seed": 0}, {"seed": 1}])
    least = 2 * groups[0].state_bytes + bytes_each(groups[0])
    assert len(plan(groups, found, least).waves) == 2
    with pytest.raises(MemoryBudgetError, match="not even one setting fits the memory budget") as caught:
        plan(groups, found, least - 1)
    assert f"write: bp.sweep(..., memory={least})" in str(caught.value)


def test_free_memory_is_found():
    assert 1 << 20 < available(torch.device("cpu")) < 1 << 50


@pytest.mark.parametrize(
    ("count", "text"), [(5, "5 bytes"), (2048, "2.0 KiB"), (3 << 20, "3.0 MiB"), (3 << 29, "1.5 GiB")]
)
def test_bytes_for_people(count, text):
    assert size(count) == text
