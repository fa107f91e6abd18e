"""The page: our errors beside the published ones, the signal to noise, what each order keeps, and which order wins."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from bayesprop.experiments.pruning.orders import NAMES, winners
from bayesprop.experiments.pruning.parts import ORDERS, TITLES
from bayesprop.experiments.pruning.published import BEST_EVER, OTHERS, PAPER, SOURCE
from bayesprop.experiments.record import Record
from bayesprop.experiments.values import Comparison, Measured, Published, comparison_table
from bayesprop.report import Headline, Number, Plot, Section, Table
from bayesprop.report.weight_figures import decibel_histogram, pruning_figure, weight_densities

__all__ = ["page"]

KEEPS = {
    "signal_to_noise": "A small weight may stay if it is certain: the middle then empties slowly.",
    "magnitude": "A threshold on the size cuts sharply.",
}
TARGETS = {0.95: 0.05, 0.98: 0.10}  # points that may be lost


def page(record: Record) -> list[Section]:
    """All sections for which there are parts."""
    made = [_network(record, name) for name in TITLES]
    made += [_others(), winners(record), _differences(record)]
    return [section for section in made if section is not None]


def measured(result: Mapping[str, Any], order: str, share: int, of: str = "means") -> Measured:
    """Percent, one value for each seed."""
    return Measured.of([curve[order][of][share] for curve in result["curves"]], 100.0)


def lost(result: Mapping[str, Any], order: str, share: int, of: str = "means") -> Measured:
    """Points that this share costs each seed."""
    pairs = [(curve[order][of][share], curve[order][of][0]) for curve in result["curves"]]
    return Measured.of([after - before for after, before in pairs], 100.0)


def _network(record: Record, name: str) -> Section | None:
    result = record.result(name)
    if result is None:
        return None
    network, shares = record.settings["networks"][name], list(record.settings["shares"])
    published = _published(name, network["width"])
    blocks: list[Any] = [_headline(result, shares), _table(result, shares, published)]
    curves = _curves(result, shares)
    if published.get("signal_to_noise"):
        source = "source 000" if name == "source" else "the paper"
        curves[f"{source}, by noise"] = [(s, v.value / 100.0) for s, v in published["signal_to_noise"].items()]
    figure = pruning_figure(curves)
    blocks.append(Plot("Error and weights removed", figure, "Means over the seeds; both axes end where it matters."))
    blocks.append(_noise_plot(result))
    blocks += _weights_plots(result)
    text = (
        f"{_upper(TITLES[name])}: {network['width']} units in each of two hidden layers, {network['epochs']} "
        f"epochs, mixture of scales {network['prior.scale1']:.3g} and {network['prior.scale2']:.2g}, KL weight "
        f"{network['temperature']:g}. The network is the one at the end of its training, nothing is trained again, and "
        "mean and deviation of a removed weight are both zero."
    )
    return Section(_upper(TITLES[name]), blocks, text)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _published(name: str, width: int) -> dict[str, dict[float, Published]]:
    """What belongs beside this network: only what was published for its size."""
    if name != "source" and width == 1200:
        return {"signal_to_noise": PAPER}
    return SOURCE if name == "source" and width == 400 else {}


def _headline(result: Mapping[str, Any], shares: Sequence[float]) -> Headline:
    error = measured(result, "signal_to_noise", 0)
    numbers = [
        Number(
            "all weights",
            f"{error.mean:.2f} %",
            f"{error.shown()}: posterior means, {error.seeds} seeds; {result['weights']:,} weights.",
        )
    ]
    for share, target in TARGETS.items():
        if share in shares:
            points = lost(result, "signal_to_noise", shares.index(share))
            said = points.shown().replace("-", "−")
            note = f"{said} points lost by signal to noise. The aim for the paper's network is {target:.2f}."
            numbers.append(Number(f"{100 * share:g} % removed", f"{points.mean:+.2f}".replace("-", "−"), note))
    return Headline(numbers)


def _table(
    result: Mapping[str, Any], shares: Sequence[float], published: Mapping[str, Mapping[float, Published]]
) -> Table:
    lines = []
    for order, (place, share) in itertools.product(ORDERS, enumerate(shares)):
        left = f"{round(result['weights'] * (1 - share)):,}"
        value = published.get(order, {}).get(share)
        drawn = measured(result, order, place, "draws")
        lines.append(
            Comparison(
                (NAMES[order], f"{100 * share:g} %", left),
                [value] if value else [],
                measured(result, order, place),
                drawn.shown(),
            )
        )
    made = comparison_table("Test error", ("order", "removed", "weights left"), lines, unit="%")
    header = [*made.header[:-1], "here, draws, %"] if len(made.header) == 8 else made.header
    caption = made.caption + " Ours are errors of the posterior means; the last column averages draws of the weights."
    return Table(header, made.rows, made.title, caption.strip(), (*made.numeric, 7))


def _curves(result: Mapping[str, Any], shares: Sequence[float]) -> dict[str, list[tuple[float, float]]]:
    return {
        f"{NAMES[order]}, {of}": [(s, measured(result, order, i, of).mean / 100.0) for i, s in enumerate(shares)]
        for order in ORDERS
        for of in ("means", "draws")
    }


def _noise_plot(result: Mapping[str, Any]) -> Plot:
    noise = result["noise"]
    return Plot(
        "Signal to noise of the weights",
        decibel_histogram((noise["edges"], noise["counts"]), noise["cuts"]),
        f"All seeds; {100 * noise['below_one']:.0f} % of the weights are below 0 dB. Lines: where 25, 50, 75 and 95 % "
        "end. A level piece between two slopes is what two modes look like; the paper sees two, its 75 % between "
        "them, and source 000 sees them in one of its runs.",
    )


def _weights_plots(result: Mapping[str, Any]) -> list[Plot]:
    """Figure 3 of source 000: what each order leaves."""
    left, found = result["left"], []
    for order in ORDERS:
        rows = {f"{100 * float(share):g} %": counts for share, counts in left[order].items()}
        figure = weight_densities({name: (left["edges"], counts) for name, counts in rows.items()}, counts=True)
        found.append(
            Plot(f"What {NAMES[order]} keeps", figure, f"Means of the first seed, by what is removed. {KEEPS[order]}")
        )
    return found


def _others() -> Section:
    rows = [
        (who, f"{100 * share:g} %", value.shown(), value.source)
        for (who, _), values in OTHERS.items()
        for share, value in values.items()
    ]
    text = (
        "Replications disagree by an order of magnitude. One that leaves the deviations of removed weights as they "
        "were gets about 90 % error by draws; here mean and deviation go together. The lowest error that the paper "
        f"ever saw for its network is {BEST_EVER.value:.2f} % [{BEST_EVER.mark}]."
    )
    header = ("network", "removed", "test error, %", "source")
    return Section("What others published", [Table(header, rows, numeric=(1, 2))], text)


def _differences(record: Record) -> Section | None:
    """Ours less the published value where that is more than chance, and what may explain it."""
    said, compared, shares = [], 0, list(record.settings["shares"])
    for name in TITLES:
        result = record.result(name)
        published = {} if result is None else _published(name, record.settings["networks"][name]["width"])
        for order, values in published.items():
            for share, value in values.items():
                if result is None or share not in shares:
                    continue
                ours = measured(result, order, shares.index(share))
                compared += 1
                one_run = 100.0 * (value.value / 100.0 * (1.0 - value.value / 100.0) / 10_000) ** 0.5
                if abs(ours.mean - value.value) > 2.0 * (one_run**2 + (ours.standard_error or one_run) ** 2) ** 0.5:
                    ends = (value.shown(), ours.shown())
                    said.append((TITLES[name], NAMES[order], f"{100 * share:g} %", *ends))
    if not compared:
        return None
    why = (
        "Neither source states the start of rho, and source 000 not that of the means. The paper's network is one run "
        "of a grid of 324, without a word on the weight of its KL; ours weighs the KL by a tenth, and the one with the "
        "full KL stands beside it. Source 000 prunes the checkpoint with the best validation error, we the last one."
    )
    if not said:
        return Section("Where we differ", [], f"None of {compared} values is further away than two deviations. {why}")
    header = ("network", "order", "removed", "published, %", "here, %")
    return Section("Where we differ", [Table(header, said, numeric=(2, 3, 4))], why)
