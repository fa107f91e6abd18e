import weakref

import pytest
import torch

from bayesprop.errors import DataError
from bayesprop.likelihoods import Categorical
from bayesprop.prediction import Prediction
from bayesprop.prediction import chunks as module
from bayesprop.prediction.chunks import Chunks, by_rows


class Counting:
    """A source that counts its passes and how many of its outputs are alive at once."""

    def __init__(self, rows, draws, columns, size):
        self.rows, self.draws, self.columns, self.size = rows, draws, columns, size
        self.passes, self.alive, self.most, self.largest = 0, 0, 0, 0

    def _died(self):
        self.alive -= 1

    def __call__(self):
        self.passes += 1
        for start in range(0, self.rows, self.size):
            count = min(self.size, self.rows - start)
            # Noise that is a function of the place, as the counter-based noise of a posterior is.
            place = torch.arange(start, start + count)[None, :, None] + 0.37 * torch.arange(self.draws)[:, None, None]
            outputs = torch.sin(place + torch.arange(self.columns))
            self.alive += 1
            self.most, self.largest = max(self.most, self.alive), max(self.largest, outputs.numel())
            weakref.finalize(outputs, self._died)
            yield slice(start, start + count), outputs, {}
            del outputs


def test_a_small_source_is_run_once_and_remembered():
    source = Counting(rows=10, draws=3, columns=2, size=4)
    prediction = Prediction(source, Categorical(), inputs_length=10, draws=3)
    for _ in range(2):
        assert prediction.mean.shape == (10, 2)
        assert prediction.quantile(0.3).shape == (10, 2)
        assert prediction.samples().shape == (3, 10)
    assert source.passes == 1
    assert source.alive == 3


def test_a_large_source_is_never_in_memory():
    # One chunk is 100 x 64 x 4 numbers; everything together would be 39 times as much.
    source = Counting(rows=2_500, draws=100, columns=4, size=64)
    prediction = Prediction(source, Categorical(), inputs_length=2_500, draws=100, budget=500_000)
    assert prediction.mean.shape == prediction.std.shape == (2_500, 4)
    assert prediction.epistemic.shape == prediction.aleatoric.shape == prediction.entropy.shape == (2_500,)
    assert source.passes == 1  # all of these are one pass
    low, high = prediction.interval(0.9)
    assert bool((low <= high).all())
    assert source.passes == 2  # both ends are one pass
    assert prediction.interval(0.9)[0] is not None
    assert source.passes == 2  # and remembered
    assert prediction.log_prob(torch.zeros(2_500, dtype=torch.int64)).shape == (2_500,)
    assert prediction.samples(7).shape == (7, 2_500)
    assert prediction[5:900].mean.shape == (895, 4)
    assert source.most == 1
    assert source.alive == 0
    assert source.largest == 100 * 64 * 4


def test_a_pass_that_is_given_up_is_not_remembered():
    chunks = Chunks(Counting(10, 2, 1, 4), rows=10, draws=2, budget=10**6)
    next(iter(chunks))
    assert not chunks.kept
    assert sum(chunk.outputs.shape[1] for chunk in chunks) == 10
    assert chunks.kept


def test_gradients_are_left_behind():
    weight = torch.ones(2, 3, 1, requires_grad=True)
    chunks = Chunks(lambda: iter([(slice(0, 3), weight * 2, {"scale": weight[:, 0, 0]})]), rows=3, draws=2, budget=0)
    (chunk,) = chunks
    assert not chunk.outputs.requires_grad
    assert not chunk.latents["scale"].requires_grad
    assert chunks.map(lambda _: torch.is_grad_enabled()) == [False]


@pytest.mark.parametrize(
    ("rows", "shape", "message"),
    [
        (slice(0, 3), (2, 4, 1), r"outputs \(2, 4, 1\) for rows 0\.\.3"),
        (slice(1, 5), (2, 4, 1), r"from row 0 on"),
        (slice(0, 4), (3, 4, 1), r"expected: outputs \(2, rows"),
        (slice(0, 2), (2, 2, 1), r"every row\n  received: 2 rows\n  expected: 4 rows"),
    ],
)
def test_sources_that_do_not_keep_their_word(rows, shape, message):
    chunks = Chunks(lambda: iter([(rows, torch.zeros(shape), {})]), rows=4, draws=2, budget=10)
    with pytest.raises(DataError, match=message):
        list(chunks)


def test_select_yields_the_rows_asked_for():
    outputs = torch.arange(20.0).reshape(2, 10, 1)
    pieces = [(slice(i, i + 5), outputs[:, i : i + 5], {}) for i in (0, 5)]
    chunks = Chunks(lambda: iter(pieces), rows=10, draws=2, budget=0)
    found = list(chunks.select(torch.tensor([1, 4, 9]))())
    assert [(rows.start, rows.stop) for rows, _, _ in found] == [(0, 2), (2, 3)]
    assert torch.equal(torch.cat([o for _, o, _ in found], dim=1), outputs[:, [1, 4, 9]])


@pytest.mark.parametrize("copies", [1, 2, 9])
def test_by_rows_keeps_the_working_set_small(monkeypatch, copies):
    monkeypatch.setattr(module, "WORKING_SET", 24)
    chunk = module.Chunk(slice(0, 11), torch.arange(66.0).reshape(2, 11, 3), {})
    seen = []

    def one(chunk, rows):
        seen.append(rows.stop - rows.start)
        return chunk.outputs[:, rows].sum((0, 2))

    assert torch.equal(by_rows(chunk, one, copies), chunk.outputs.sum((0, 2)))
    assert max(seen) == {1: 4, 2: 4, 9: 1}[copies]
