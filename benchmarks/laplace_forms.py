"""Laplace approximations: what each form predicts through the network's tangent and through the network itself, and how
far evidence and predictions are from those of laplace-torch.

    python benchmarks/laplace_forms.py            scikit-learn's digits and UCI concrete, rows held back for validation
    python benchmarks/laplace_forms.py --parity   where laplace-torch is installed: the largest differences

The first trains 64-50-50-10 on 1200 digits for 60 epochs, and 8-50-1 on the training part of the first split of
concrete without its last fifth for 3000 steps, from the same start for all forms.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import record
import torch
from torch import nn

import bayesprop as bp
from bayesprop.inference import MAP, Laplace

FORMS: dict[str, dict[str, Any]] = {
    "diagonal": {"hessian": "diagonal"},
    "kron": {"hessian": "kron"},
    "last_layer": {"hessian": "last_layer"},
    "full": {"hessian": "full"},
}
PRIORS: tuple[Any, ...] = (1.0, "evidence")


def digits() -> tuple[bp.Model, Any, tuple[Any, Any], int]:
    x, y = (torch.as_tensor(values) for values in bp.data.digits().original())
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order].reshape(len(x), -1).float(), y[order]
    network = nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 10))
    model = bp.Model(network, likelihood=bp.likelihoods.Categorical())
    return model, (x[:1200], y[:1200]), (x[1200:], y[1200:]), 60


def concrete() -> tuple[bp.Model, Any, tuple[Any, Any], int]:
    train, _ = bp.data.uci("concrete").split(0)
    x, y = train.original()
    count = int(0.8 * len(x))
    data = bp.Data(x[:count], y[:count], standardize=True)
    network = nn.Sequential(nn.Linear(x.shape[1], 50), nn.ReLU(), nn.Linear(50, 1))
    model = bp.Model(network, likelihood=bp.likelihoods.Gaussian())
    return model, data, (x[count:], y[count:]), 3000 // -(-count // 128)


def scores(posterior: Any, x: Any, y: Any) -> dict[str, float]:
    """Error rate or root mean squared error, and the negative log-likelihood of a row."""
    prediction = posterior.predict(x, 100)
    found = {"nll": -float(prediction.log_prob(y).mean())}
    if prediction.task == "classification":
        return found | {"error": float((torch.as_tensor(prediction.label) != y).double().mean())}
    return found | {"rmse": float((prediction.mean.reshape(-1) - y.reshape(-1)).square().mean().sqrt())}


def forms() -> None:
    results: dict[str, Any] = {}
    for name, make in (("digits", digits), ("concrete", concrete)):
        model, data, held_back, epochs = make()
        arguments = {"epochs": epochs, "progress": False, "seed": 0}
        results[name] = {"MAP": scores(bp.fit(model, data, MAP(), **arguments), *held_back)}
        for form, settings in FORMS.items():
            if form == "full" and name == "digits":
                continue  # 6,310 columns: half an hour for a table
            for prior in PRIORS:
                started = time.perf_counter()
                method = Laplace(MAP(), prior_precision=prior, **settings)
                posterior = bp.fit(model, data, method, **arguments)
                row = {
                    "tangent": scores(posterior, *held_back),
                    "network": scores(posterior.sampled(), *held_back),
                    "log_evidence": float(posterior.log_evidence),
                    "prior_precision": float(posterior.prior_precision),
                    "seconds": time.perf_counter() - started,
                }
                results[name][f"{form}, {prior if prior == 'evidence' else 'prior as it is'}"] = row
                print(name, form, prior, row, flush=True)
    record.write("laplace_forms", {"prior": "Normal(0, 1)", "draws": 100}, results)


def parity() -> None:
    sys.path.insert(0, str(record.ROOT / "tests" / "parity"))
    from importlib.metadata import version

    from test_laplace_torch import FORMS as PAIRS
    from test_laplace_torch import both, differences

    results = {
        f"{kind}, {form}": differences(*both(form, kind)) for kind in ("regression", "classification") for form in PAIRS
    }
    versions = {name: version(name) for name in ("laplace-torch", "curvlinops-for-pytorch")}
    record.write("laplace_parity", versions, results)
    for name, row in results.items():
        print(name, row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parity", action="store_true")
    warnings.simplefilter("ignore")
    parity() if parser.parse_args().parity else forms()


if __name__ == "__main__":
    assert Path(record.ROOT).is_dir()
    main()
