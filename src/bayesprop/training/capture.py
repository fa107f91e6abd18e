"""Many steps from one captured CUDA graph: the host only launches it.

The data, their order of this epoch, the numbers of every step (learning rates, KL weights) and the clock lie on the
device. A graph holds up to `RUN` steps, each at its own offset from the clock, and the last thing in the graph moves
the clock on. What can be done for many steps at once, such as gathering rows, is done so. Steps are those of
`OneByOne`, with the same noise and the same batches, to float tolerance. Only a network that draws its own numbers,
such as one with dropout, draws other ones: torch's generator is seeded once for each graph, by its first step, and not
for every step.

What cannot be captured is told by `obstacle` before the attempt or by the attempt itself: a network that draws from
the host's generator, or one that looks at its numbers to decide what to do next.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bayesprop import rng
from bayesprop.data import Data
from bayesprop.inference.method import Method, load_tensors, state_tensors
from bayesprop.kernels import device, steps
from bayesprop.model import Batch, Model
from bayesprop.training.checkpoint import Progress
from bayesprop.training.source import Source
from bayesprop.training.stepping import OneByOne, Precision, Stepper

__all__ = ["Captured", "draws_on_host", "obstacle", "stepper"]

RUN = 16  # steps in a graph: the launch of one costs as much as a step of a small network
GATHERED = 1 << 26  # bytes of minibatches that are gathered at once, unless one of them is larger


def stepper(
    model: Model, method: Method, source: Source, seeds: rng.Rng, precision: Precision, now: Progress
) -> Stepper:
    """Captured steps where that is possible, the plain path where it is not; either says which, and why."""
    reason = obstacle(model, method, source)
    if not reason:
        made = Captured(model, method, source, seeds, precision, now)
        reason = made.prepare(now)
        if not reason:
            return made
    return OneByOne(model, method, source, seeds, precision, f"step by step: {reason}")


def obstacle(model: Model, method: Method, source: Source) -> str:
    """Why the steps of a fit cannot be captured, as far as is known before trying; "" if nothing speaks against it."""
    if model.device.type != "cuda":
        return f"graphs are captured on CUDA devices, this is {model.device.type}"
    if not device.available(model.device):
        return device.status(model.device)
    if not isinstance(source.data, Data):
        return "a stream brings its batches from outside"
    if source.drawn is not None:
        return "each particle has rows of its own"
    return method.looks_at_host


def draws_on_host(steps: Callable[[], None]) -> bool:
    """Take steps, and say whether they drew from torch's generator of the CPU."""
    before = torch.default_generator.get_state()
    steps()
    return not torch.equal(before, torch.default_generator.get_state())


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage is collected while a graph is captured: freeing an older graph's memory would spoil this one."""
    gc.collect()
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class Captured:
    """See the module's docstring. With `graphs=False` the same steps are launched one by one, for tests on a CPU."""

    def __init__(
        self,
        model: Model,
        method: Method,
        source: Source,
        seeds: rng.Rng,
        precision: Precision,
        now: Progress,
        *,
        graphs: bool = True,
    ) -> None:
        assert isinstance(source.data, Data)
        assert source.count is not None
        self.model, self.method, self.source, self.seeds, self.precision = model, method, source, seeds, precision
        self.count, self.data, self.graphs = source.count, source.data, graphs
        here, particles = model.device, seeds.particles
        self.rows = self.data.rows_per_batch(source.batch_size)
        self.clock = torch.zeros(2, dtype=torch.int64, device=here)
        self.length = min(RUN, self.count)
        self.steps = torch.zeros(self.length, dtype=torch.int64, device=here)
        size = len(method.numbers(source.place(0, 0), 0))
        self.table = torch.zeros(self.count, size, particles, device=here)
        self.numbers = torch.zeros(self.length, size, particles, device=here)
        self.order: Tensor | None = None
        if self.count > 1:
            self.order = torch.zeros(particles, self.count * self.rows, dtype=torch.int64, device=here)
        self._room = self._make_room()
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._host_seeds = rng.Rng(seeds.seeds.cpu()) if model.draws_globally else None
        self._epoch = -1
        self._ahead: tuple[int, Tensor] | None = None
        self.description = "step by step"

    # -- what lies on the device ---------------------------------------------------------------------------------------

    def _make_room(self) -> list[tuple[Tensor, Tensor]]:
        """Each tensor of the data, inputs first and targets last, with room (minibatches, particles, rows, ...)."""
        if self.order is None:
            return []
        leaves = [*pytree.tree_leaves(self.data.inputs), self.data.targets]
        shape = (self.order.shape[0], self.rows)
        bytes_each = sum(shape[0] * shape[1] * leaf[0].numel() * leaf.element_size() for leaf in leaves)
        ahead = max(1, min(self.length, GATHERED // max(1, bytes_each)))
        return [(leaf, leaf.new_empty(ahead, *shape, *leaf.shape[1:])) for leaf in leaves]

    def _numbers_of(self, epoch: int) -> Tensor:
        """The numbers of all steps of an epoch, (steps, numbers, particles), as the host works them out."""
        if self._ahead is None or self._ahead[0] != epoch:
            places = ((self.source.place(epoch, index), epoch * self.count + index) for index in range(self.count))
            rows = [self.method.numbers(place, step) for place, step in places]
            if any(isinstance(number, Tensor) for number in rows[0]):
                each = [
                    torch.as_tensor(n, dtype=torch.float32).expand(self.table.shape[2]) for row in rows for n in row
                ]
                found = torch.stack(each).view(self.table.shape)
            else:
                found = torch.tensor(rows, dtype=torch.float32)[..., None]
            self._ahead = epoch, found.expand(self.table.shape)
        return self._ahead[1]

    def _load_epoch(self, epoch: int) -> None:
        """Put an epoch's order and numbers on the device."""
        if self._epoch == epoch:
            return
        self.table.copy_(self._numbers_of(epoch))
        if self.order is not None:
            drawn = self.seeds.at(epoch).permutation(self.data.num_data, rng.Stream.ORDER)
            over = self.order.shape[1] - drawn.shape[1]
            self.order.copy_(torch.cat((drawn, drawn[:, :over]), dim=1) if over else drawn)
        self._epoch = epoch

    def _gather(self, offset: int, count: int) -> None:
        """The rows of the minibatches clock + offset and after, on the device."""
        assert self.order is not None
        flat = [(steps.words(leaf), out[:count]) for leaf, out in self._room]
        if len(flat) == 2 and all(rows is not None for rows, _ in flat):
            (inputs, inputs_out), (targets, targets_out) = flat
            assert inputs is not None
            assert targets is not None
            rows, labels = (out.reshape(*out.shape[:3], -1).view(torch.int32) for out in (inputs_out, targets_out))
            steps.gather(inputs, targets, self.order, self.clock, rows, labels, offset)
            return
        at = (self.clock[1] + offset) * self.rows + torch.arange(count * self.rows, device=self.order.device)
        chosen = self.order[:, at].unflatten(1, (count, self.rows)).transpose(0, 1).flatten()
        for leaf, out in self._room:
            torch.index_select(leaf, 0, chosen, out=out[:count].view(-1, *leaf.shape[1:]))

    def _batch(self, offset: int, length: int) -> Batch:
        """The minibatch number clock + offset of a run of `length` steps."""
        numbers = self.numbers[offset]
        if self.order is None:
            inputs, targets = pytree.tree_map(self.source.for_all, (self.data.inputs, self.data.targets))
            return Batch(inputs, targets, self.data.num_data, numbers)
        ahead = self._room[0][1].shape[0]
        if offset % ahead == 0:
            self._gather(offset, min(ahead, length - offset))
        found = [out[offset % ahead] for _, out in self._room]
        inputs = pytree.tree_unflatten(found[:-1], pytree.tree_structure(self.data.inputs))
        return Batch(inputs, found[-1], self.data.num_data, numbers)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _take(self, now: Progress, length: int) -> None:
        """`length` steps from the clock on, and the clock moved: what a graph holds."""
        self.model.set_mode(True)
        numbers = self.steps[:length]
        steps.begin(self.clock, self.table, numbers, self.numbers[:length])
        places = ((self._batch(offset, length), self.seeds.at(self.steps[offset])) for offset in range(length))
        with self.precision():
            taken = list(self.method.run(self.model, now.state, places))
        state, _ = taken[-1]
        if state is not now.state:
            load_tensors(now.state, state_tensors(state), source="the step")
        values = [info.log_likelihood.detach() for _, info in taken]
        steps.tally(torch.stack(values), now.total, now.first_bad, numbers)
        self.clock += length

    def prepare(self, now: Progress) -> str:
        """Capture the steps of a whole run; what speaks against it, in words, or "".

        Kernels are compiled and libraries make their plans in a run of two steps whose outcome is taken back.
        """
        kept = [t.clone() for t in (*state_tensors(now.state).values(), now.total, now.first_bad)]
        self._load_epoch(now.epoch)
        length = min(RUN, self.count)
        try:
            if self.graphs:
                side = torch.cuda.Stream(self.model.device)
                side.wait_stream(torch.cuda.current_stream(self.model.device))
                with self._own_generator(now.step):
                    with torch.cuda.stream(side):
                        drew = draws_on_host(lambda: self._take(now, min(2, length)))
                    torch.cuda.current_stream(self.model.device).wait_stream(side)
                    if drew:  # and so may have decided something that a graph would repeat for ever
                        return "the network draws from the host's generator"
                    self._graph(now, length)
        except Exception as error:  # whatever it is, the plain path is right
            return f"the step cannot be captured: {(str(error).splitlines() or [type(error).__name__])[0]}"
        finally:
            for tensor, before in zip(
                (*state_tensors(now.state).values(), now.total, now.first_bad), kept, strict=True
            ):
                tensor.copy_(before)
        self.description = f"{length} steps in a CUDA graph; {self._body()}"
        return ""

    def _own_generator(self, step: int) -> contextlib.AbstractContextManager[None]:
        """Torch's generators seeded for the graph that begins with this step, if the network draws from them.

        The seed is worked out on the host, so that nobody waits for the device.
        """
        if self._host_seeds is None:
            return contextlib.nullcontext()
        return rng.quarantine(self._host_seeds.at(step).integer(rng.Stream.GLOBAL), self.model.device)

    def _body(self) -> str:
        explain = getattr(self.method, "explain", None)
        return explain(self.model) if explain is not None else type(self.method).__name__

    def _graph(self, now: Progress, length: int) -> torch.cuda.CUDAGraph:
        found = self._graphs.get(length)
        if found is None:
            found = torch.cuda.CUDAGraph()
            with _without_collection(), torch.cuda.graph(found, capture_error_mode="thread_local"):
                self._take(now, length)
            self._graphs[length] = found
        return found

    def epoch(self, now: Progress) -> Iterator[None]:
        self._load_epoch(now.epoch)
        self.clock.copy_(torch.tensor([now.step, now.index]))
        while now.index < self.count:
            length = min(RUN, self.count - now.index)
            if self.graphs and length not in self._graphs:
                with self._own_generator(now.step):
                    self._graph(now, length)
            with self._own_generator(now.step):
                if self.graphs:
                    self._graphs[length].replay()
                else:
                    self._take(now, length)
            now.step, now.index = now.step + length, now.index + length
            if now.index == self.count and now.epoch + 1 < self.source.epochs:
                self._numbers_of(now.epoch + 1)  # while the device is busy
            yield
