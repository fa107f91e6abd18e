"""Tables of the engine: steps, predictions, memory; tables.py puts them into the documents."""

from __future__ import annotations

from collections.abc import Callable

from cells import load, made_by, score, table

__all__ = ["SPEED", "TABLES"]

# The records of the table "speed".
SPEED = ("step_gpu", "mnist_gpu", "step_networks", "prediction_gpu", "step_cpu", "memory", "prediction")


def step_gpu() -> str:
    found, rows = load("step_gpu")["results"], []
    for name, value in found.items():
        if isinstance(value, float):
            rows.append((name, "1", f"{value:.0f}", ""))
        else:
            prior, models = name.split(", ")
            ratio = f"{value['ratio']:.2f}" if "ratio" in value else ""
            rows.append((f"bayesprop, {prior} prior", models, f"{value['per model']:.1f}", ratio))
            if "ratio" in value:
                rows.append((f"by hand in JAX, {prior} prior", models, f"{value['by hand in JAX, per model']:.1f}", ""))
    header = (
        "784-400-400-10, batch 128, one sample",
        "models at once",
        "microseconds a step and model",
        "ratio to JAX",
    )
    return table(header, rows) + made_by("step_gpu")


def step_growth() -> str:
    rows = [
        (name, f"{line['bayesian']:.0f}", f"{line['deterministic']:.0f}", f"{line['ratio']:.2f}")
        for name, line in load("step_growth")["results"].items()
    ]
    rest = load("step_growth")["settings"]["rest"]
    header = (f"else {rest}", "Bayesian, microseconds a step", "torch's Adam in a graph", "ratio")
    return table(header, rows) + made_by("step_growth")


def same_result() -> str:
    found, rows = load("same_result")["results"], []
    for prior in ("normal", "mixture"):
        for key, words in (("own", "the GPU's own bodies"), ("plain", "the plain path")):
            line = found[f"{prior}, MNIST, {key}"]
            rows.append((f"{prior} prior, {words}", score(line["error"], ".2f", 100), score(line["nll"], ".4f")))
    settings = load("same_result")["settings"]
    header = (f"MNIST, {settings['epochs']} epochs, {settings['seeds']} seeds", "test error, %", "test NLL")
    return table(header, rows) + made_by("same_result")


def step_networks() -> str:
    rows = [
        (
            name,
            f"{value['deterministic']:.2f}",
            f"{value['bayesian']:.2f}",
            f"{value['ratio']:.2f}",
            f"{value['4 particles, each']:.2f}",
        )
        for name, value in load("step_networks")["results"].items()
    ]
    header = ("batch 128, TF32, both captured", "Adam, ms a step", "Bayesian", "ratio", "each of 4 at once")
    return table(header, rows) + made_by("step_networks")


def speed() -> str:
    """The engine in ten lines."""
    gpu, whole, networks, predicted, cpu, peak, slow = (load(name)["results"] for name in SPEED)
    step = gpu["normal, 1"]["per model"]
    rows = [
        (
            "a training step, one model",
            f"{step:.0f} µs",
            f"hand-written JAX {gpu['normal, 1']['ratio'] ** -1 * step:.0f}",
        ),
        ("", "", f"NumPyro {gpu['numpyro']:.0f}"),
        ("", "", f"deterministic network under Adam, in a graph {gpu['deterministic, graph']:.0f}"),
        ("", "", ", ".join(f"{n} {gpu[n]:,.0f}" for n in ("bayesian-torch", "blitz", "torchbnn", "ivon"))),
        ("the same for 324 models at once, each", f"{gpu['normal, 324']['per model']:.1f} µs", ""),
        ("600 epochs of MNIST, everything included", f"{whole['seconds']:.0f} s", ""),
        *(
            (f"a step of {n}", f"{v['bayesian']:.2f} ms", f"deterministic, captured too {v['deterministic']:.2f}")
            for n, v in networks.items()
        ),
        (
            "prediction, 10,000 rows and 100 draws",
            f"{predicted['bayesprop']['mean'] * 1e3:.0f} ms",
            f"a loop over draws {predicted['loop']['mean'] * 1e3:.0f}",
        ),
        (
            "CPU: a training step, scale mixture",
            f"{cpu['bayesprop']['milliseconds']:.1f} ms",
            f"Adam {cpu['Adam, eager']['milliseconds']:.1f}, "
            f"hand-written JAX {cpu['by hand in JAX']['milliseconds']:.1f}",
        ),
        ("CPU: prediction", f"{slow['bayesprop']['mean']:.1f} s", f"a loop over draws {slow['loop']['mean']:.1f}"),
        (
            "peak memory of training",
            f"{peak['bayesprop, bytes a weight']:.0f} bytes a weight",
            f"Adam {peak['adam, bytes a weight']:.0f}",
        ),
    ]
    header = (
        "784-400-400-10, batch 128, one sample; NVIDIA H200 unless it says CPU",
        "bayesprop",
        "beside, in the same run",
    )
    return table(header, rows) + "\nCommands and records: [docs/performance.md](docs/performance.md)\n"


def mnist_gpu() -> str:
    record = load("mnist_gpu")
    found, epochs = record["results"], record["settings"]["epochs"]
    rows = [
        ("seconds, everything included", f"{found['seconds']:.1f}"),
        ("test error", f"{100 * found['test error']:.2f} %"),
        ("test negative log-likelihood", f"{found['test nll']:.3f}"),
    ]
    return table((f"MNIST, {epochs} epochs by `bp.fit`, defaults, one seed", ""), rows) + made_by("mnist_gpu")


def step_cpu() -> str:
    found = load("step_cpu")["results"]
    rows = [
        (name, f"{value['milliseconds']:.2f}", f"{value['ratio']:.2f}")
        for name, value in found.items()
        if isinstance(value, dict)
    ]
    header = ("784-400-400-10, batch 128, scale mixture", "ms a step", "ratio to torch's Adam, eager")
    return table(header, rows) + made_by("step_cpu")


def memory() -> str:
    record = load("memory")
    found = record["results"]
    rows = [(name, f"{found[f'{name}, bytes a weight']:.0f}") for name in ("adam", "bayesprop")]
    title = f"peak of a training, {found['weights'] / 1e6:.1f} million weights"
    return table((title, "bytes a weight"), [*rows, ("ratio", f"{found['ratio']:.2f}")]) + made_by("memory")


def _prediction(name: str, unit: float, form: str) -> str:
    record = load(name)
    found, settings = record["results"], record["settings"]
    rows = [(who, score(found[who], form, unit)) for who in ("loop", "bayesprop")]
    title = f"{settings['rows']} rows, {settings['draws']} draws"
    header = (title, "seconds" if unit == 1.0 else "milliseconds")
    return table(header, [*rows, ("ratio", f"{found['ratio']:.2f}")]) + made_by(name)


def prediction() -> str:
    return _prediction("prediction", 1.0, ".2f")


def prediction_gpu() -> str:
    return _prediction("prediction_gpu", 1e3, ".1f")


def tiny() -> str:
    found = load("tiny")["results"]
    rows = [
        (name, f"{value['milliseconds']:.3f}", f"{value['ratio']:.2f}")
        for name, value in found.items()
        if isinstance(value, dict)
    ]
    header = ("two moons, 2-5-5-2, hierarchical prior, all 1,000 rows a step", "ms a step", "ratio to NumPyro's scan")
    return table(header, rows) + made_by("tiny")


TABLES: dict[str, Callable[[], str]] = {
    "memory": memory,
    "mnist_gpu": mnist_gpu,
    "prediction": prediction,
    "prediction_gpu": prediction_gpu,
    "same_result": same_result,
    "speed": speed,
    "step_cpu": step_cpu,
    "step_gpu": step_gpu,
    "step_growth": step_growth,
    "step_networks": step_networks,
    "tiny": tiny,
}
