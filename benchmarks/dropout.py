"""The dropout family on rows that are held back: what rates and noise do, and where they end when they are learnt.

    python benchmarks/dropout.py

64-200-200-10 on 1200 of scikit-learn's digits for 60 epochs, and 8-50-1 on the training part of the first split of
concrete without its last fifth for 6000 steps; prior N(0, 1), one seed, defaults but for what the row says.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import record
import torch
from torch import nn

import bayesprop as bp
from bayesprop.inference import MAP, ConcreteDropout, GaussianDropout, MCDropout, SparseVariationalDropout

METHODS: dict[str, Any] = {
    "MAP()": MAP(),
    "MCDropout(rate=0.01)": MCDropout(rate=0.01),
    "MCDropout(rate=0.05)": MCDropout(rate=0.05),
    "MCDropout(rate=0.1)": MCDropout(rate=0.1),
    "ConcreteDropout()": ConcreteDropout(),
    "GaussianDropout(alpha=0.01)": GaussianDropout(alpha=0.01),
    "GaussianDropout()": GaussianDropout(),
    'GaussianDropout(learn="layer")': GaussianDropout(learn="layer"),
    "SparseVariationalDropout()": SparseVariationalDropout(),
}


def digits() -> tuple[bp.Model, Any, tuple[Any, Any], int]:
    x, y = (torch.as_tensor(values) for values in bp.data.digits().original())
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order].reshape(len(x), -1).float(), y[order]
    network = nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
    model = bp.Model(network, likelihood=bp.likelihoods.Categorical())
    return model, (x[:1200], y[:1200]), (x[1200:], y[1200:]), 60


def concrete() -> tuple[bp.Model, Any, tuple[Any, Any], int]:
    train, _ = bp.data.uci("concrete").split(0)
    x, y = train.original()
    count = int(0.8 * len(x))
    data = bp.Data(x[:count], y[:count], standardize=True)
    network = nn.Sequential(nn.Linear(x.shape[1], 50), nn.ReLU(), nn.Linear(50, 1))
    model = bp.Model(network, likelihood=bp.likelihoods.Gaussian())
    return model, data, (x[count:], y[count:]), 6000 // -(-count // 128)


def row(posterior: Any, x: Any, y: Any) -> dict[str, Any]:
    """Error rate or root mean squared error, negative log-likelihood, the epistemic share, and what was learnt."""
    prediction = posterior.predict(x, 100)
    found: dict[str, Any] = {
        "nll": -float(prediction.log_prob(y).mean()),
        "epistemic_share": float(prediction.epistemic.mean() / prediction.total.mean()),
    }
    if prediction.task == "classification":
        found["error"] = float((torch.as_tensor(prediction.label) != y).double().mean())
    else:
        found["rmse"] = float((prediction.mean.reshape(-1) - y.reshape(-1)).square().mean().sqrt())
    if hasattr(posterior, "rate"):
        found["rates"] = posterior.rate[0].tolist()
    if hasattr(posterior, "sparsity"):
        found["sparsity"] = posterior.sparsity()["all"]
        alphas = [posterior.alpha(name) for name in posterior.layers]
        found["median_alpha_of_what_is_kept"] = [float(a[torch.isfinite(a)].median()) for a in alphas]
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {}
    for name, make in (("digits", digits), ("concrete", concrete)):
        results[name] = {}
        for label, method in METHODS.items():
            model, data, held_back, epochs = make()
            started = time.perf_counter()
            posterior = bp.fit(model, data, method, epochs=epochs, progress=False)
            results[name][label] = row(posterior, *held_back) | {"seconds": time.perf_counter() - started}
            print(name, label, results[name][label], flush=True)
    record.write("dropout", {"prior": "Normal(0, 1)", "draws": 100, "seed": 0}, results)


if __name__ == "__main__":
    main()
