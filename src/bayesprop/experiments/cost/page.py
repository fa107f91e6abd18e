"""The page: seconds an epoch, epochs an hour, Bayesian beside deterministic; what table 1 cost in all."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from bayesprop.experiments.cost.parts import KINDS
from bayesprop.experiments.cost.published import EPOCHS, RATIO
from bayesprop.experiments.plots import bars_figure
from bayesprop.experiments.record import Record, stored_path
from bayesprop.experiments.values import MARKS
from bayesprop.report import Headline, Number, Plot, Section, Table

__all__ = ["page", "table_1_section"]

SHORT = {
    "sgd": "SGD",
    "dropout": "dropout",
    "gaussian": "Gaussian",
    "mixture": "mixture",
    "mixture-2": "mixture, 2 draws",
}
LIMIT = 15.0  # minutes of an H200 that table 1 at paper scale may take


def page(record: Record) -> list[Section]:
    """All sections."""
    path = stored_path("table-1", record.scale)
    others = [table_1_section(Record.load(path))] if path.exists() else []
    return [_epochs(record), _ratios(record), *others]


def _epochs(record: Record) -> Section:
    rows = []
    for name, found in record.results():
        theirs = EPOCHS.get((found["kind"], found["width"]), ())
        values = found["epoch_seconds"]
        spread = f"{found['seconds']:.3g} ({min(values):.3g} to {max(values):.3g})"
        shown = ", ".join(f"{value.value:.3g} [{value.mark}]" for value in theirs) or "–"
        device = record.parts[name]["device"]
        threads = f", {found['threads']} threads" if found["device"] == "cpu" else ""
        labels = (f"{device}{threads}", KINDS[found["kind"]], f"{found['width']}", f"{found['starts']}")
        rate = f"{found['epochs_an_hour']:,.0f}"
        step = f"{found['microseconds_a_step']:,.0f}"
        rows.append((*labels, spread, f"{len(values)}", rate, step, shown))
    header = ("device", "training", "units", "at once", "seconds an epoch", "epochs timed", "epochs an hour")
    header = (*header, "µs a step and network", "published, s an epoch")
    values = [value for found in EPOCHS.values() for value in found]
    marks = dict.fromkeys(value.mark for value in values)
    caption = (
        "Median (fastest to slowest). Epochs an hour count those of all networks that are trained at once. Published: "
        + "; ".join(f"{value.source} [{value.mark}]" for value in values)
        + ". Marks: "
        + ", ".join(f"[{mark}] {MARKS[mark]}" for mark in marks)
        + "."
    )
    text = (
        f"MNIST, two hidden layers, minibatches of {record.settings['batch_size']}, one weight sample a step unless "
        "something else is said. Published times are of other machines, and include whatever was looked at in between."
    )
    table = Table(header, rows, caption=caption, numeric=tuple(range(2, 9)))
    return Section("An epoch of MNIST", [*_bars(record), table], text)


def _bars(record: Record) -> list[Plot]:
    """Epochs an hour of each width, published ones below."""
    blocks = []
    for width in record.settings["widths"]:
        ours = {
            f"{found['device']}, {SHORT[found['kind']]}"
            + (f", {found['starts']}" if found["starts"] > 1 else ""): found
            for _, found in record.results()
            if found["width"] == width
        }
        theirs = {
            f"{SHORT[kind]} [{value.mark}]" + "\N{ZERO WIDTH SPACE}" * i: 3600.0 / value.value
            for (kind, units), values in EPOCHS.items()
            for i, value in enumerate(values)
            if units == width
        }
        if ours:
            values = {label: found["epochs_an_hour"] for label, found in ours.items()}
            figure = bars_figure(values, xlabel="epochs an hour", published=theirs)
            blocks.append(Plot(f"{width} units", figure, "Hollow: published, on other machines."))
    return blocks


def _ratios(record: Record) -> Section:
    """Bayesian over deterministic, on the same machine in the same run."""
    by_place: dict[tuple[str, int, int], dict[str, Mapping[str, Any]]] = {}
    for _, found in record.results():
        by_place.setdefault((found["device"], found["width"], found["starts"]), {})[found["kind"]] = found
    rows = []
    for (device, width, starts), kinds in by_place.items():
        for kind, found in kinds.items():
            if kind in ("sgd", "dropout"):
                continue
            ratios = [
                f"{found['seconds'] / kinds[base]['seconds']:.2f}" if base in kinds else "–"
                for base in ("sgd", "dropout")
            ]
            rows.append((device, KINDS[kind], f"{width}", f"{starts}", *ratios))
    header = ("device", "training", "units", "at once", "times SGD", "times dropout")
    text = f"Published: {RATIO.value:g} times dropout ({RATIO.source} [{RATIO.mark}])."
    return Section("What being Bayesian costs", [Table(header, rows, numeric=(2, 3, 4, 5))], text)


def table_1_section(record: Record) -> Section:
    """Minutes of all parts of table 1, choices included; those that the paper does not have stand apart."""
    minutes = record.seconds / 60.0
    beyond = sum(part["seconds"] for name, part in record.parts.items() if "-full" in name) / 60.0
    devices = dict.fromkeys(part["device"] for part in record.parts.values())
    kinds: dict[str, list[float]] = {}
    for name, part in record.parts.items():
        kind = "choices" if name.startswith("choose-") else f"{name.rpartition('-')[2]} units"
        kinds.setdefault(kind, []).append(part["seconds"])
    rows = [(kind, f"{len(seconds)}", f"{sum(seconds):,.0f}") for kind, seconds in kinds.items()]
    steps = sum(part["result"]["member_steps"] for part in record.parts.values())
    typical = statistics.median(
        1e6 * part["result"]["training_seconds"] / part["result"]["member_steps"] for part in record.parts.values()
    )
    numbers = [
        Number(
            "the paper's cells", f"{minutes - beyond:.1f} min", f"{', '.join(devices)}; {LIMIT:g} is the aim on an H200"
        ),
        Number("rows with the full KL", f"{beyond:.1f} min", "which the paper's table does not have apart"),
        Number("steps", f"{steps:,}", "of single networks"),
        Number("a step", f"{typical:.0f} µs", "median over the parts, scores and checkpoints included"),
    ]
    missing = f" Not run: {', '.join(record.missing)}." if record.missing else ""
    text = f"Scale {record.scale}: {record.settings['epochs']} epochs, {record.settings['seeds']} seeds.{missing}"
    table = Table(("parts", "number", "seconds"), rows, numeric=(1, 2))
    return Section("What table 1 cost", [Headline(numbers), table], text)
