"""A training step of other libraries: MLP 784-400-400-10, batch 128, one sample, an honest KL of sum / N.

    PYTHON benchmarks/peers.py [--device cuda] [--steps 200] [--peers bayesian-torch,blitz,torchbnn,numpyro]

PYTHON is that of an environment of its own: pip install bayesian-torch blitz-bayesian-pytorch torchbnn ivon-opt
torch-uncertainty numpyro. Prints one line of JSON: milliseconds of a step, the median of five runs, or why there is
none. Each library is used as its manual says, but for the weight of the KL, which is what the ELBO asks for.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

ROWS, BATCH, SIZES = 12_800, 128, (784, 400, 400, 10)
Step = Callable[[Any, Any], Any]


def _layers(linear: Callable[[int, int], Any], relu: Callable[[], Any]) -> list[Any]:
    found: list[Any] = []
    for inputs, outputs in zip(SIZES, SIZES[1:], strict=False):
        found += [linear(inputs, outputs), relu()]
    return found[:-1]


def _descent(network: Any, loss: Step) -> Step:
    import torch

    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()

    return step


def bayesian_torch(device: str) -> Step:
    import torch
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn
    from torch import nn
    from torch.nn.functional import cross_entropy, softplus

    network = nn.Sequential(*_layers(nn.Linear, nn.ReLU))
    how = {"prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0, "posterior_rho_init": -3.0}
    dnn_to_bnn(network, {**how, "type": "Reparameterization", "moped_enable": False, "moped_delta": 0.5})
    network.to(device)
    found = dict(network.named_parameters())
    pairs = [(found[name], found[name.replace("mu_", "rho_")]) for name in found if "mu_" in name]

    def loss(x: Any, y: Any) -> Any:
        data = cross_entropy(network(x), y)
        scales = [(mean, softplus(rho)) for mean, rho in pairs]
        kl = sum((0.5 * (std**2 + mean**2 - 1.0) - torch.log(std)).sum() for mean, std in scales)
        return data + kl / ROWS

    return _descent(network, loss)


def blitz(device: str) -> Step:
    from blitz.modules import BayesianLinear
    from blitz.utils import variational_estimator
    from torch import nn

    @variational_estimator
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            how = {"prior_sigma_1": 1.0, "prior_sigma_2": 0.0025, "prior_pi": 0.5, "posterior_rho_init": -3.0}
            self.layers = nn.Sequential(*_layers(lambda i, o: BayesianLinear(i, o, **how), nn.ReLU))

        def forward(self, x: Any) -> Any:
            return self.layers(x)

    network: Any = Network().to(device)
    criterion = nn.CrossEntropyLoss()
    return _descent(
        network,
        lambda x, y: network.sample_elbo(
            inputs=x, labels=y, criterion=criterion, sample_nbr=1, complexity_cost_weight=1 / ROWS
        ),
    )


def torchbnn(device: str) -> Step:
    import torchbnn as bnn
    from torch import nn
    from torch.nn.functional import cross_entropy

    layers = _layers(lambda i, o: bnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=i, out_features=o), nn.ReLU)
    network = nn.Sequential(*layers).to(device)
    kl = bnn.BKLLoss(reduction="sum", last_layer_only=False)
    return _descent(network, lambda x, y: cross_entropy(network(x), y) + kl(network).squeeze() / ROWS)


def torch_uncertainty(device: str) -> Step:
    from torch import nn
    from torch_uncertainty.layers.bayesian import BayesLinear
    from torch_uncertainty.losses import ELBOLoss

    how = {"prior_sigma_1": 1.0, "prior_sigma_2": 0.0025, "prior_pi": 0.5, "sigma_init": -3.0}
    network = nn.Sequential(*_layers(lambda i, o: BayesLinear(i, o, **how), nn.ReLU)).to(device)
    elbo = ELBOLoss(model=network, inner_loss=nn.CrossEntropyLoss(), kl_weight=3 / ROWS, num_samples=1)
    return _descent(network, lambda x, y: elbo(x, y).sum())


def ivon(device: str) -> Step:
    import ivon as package
    from torch import nn
    from torch.nn.functional import cross_entropy

    network = nn.Sequential(*_layers(nn.Linear, nn.ReLU)).to(device)
    optimizer = package.IVON(network.parameters(), lr=0.1, ess=ROWS, weight_decay=1 / ROWS)

    def step(x: Any, y: Any) -> None:
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            cross_entropy(network(x), y).backward()
        optimizer.step()

    return step


PEERS: dict[str, Callable[[str], Step]] = {
    "bayesian-torch": bayesian_torch,
    "blitz": blitz,
    "torchbnn": torchbnn,
    "torch-uncertainty": torch_uncertainty,
    "ivon": ivon,
}


def in_torch(make: Callable[[str], Step], device: str, steps: int) -> float:
    """Milliseconds of a step in eager torch; minibatches lie on the device."""
    import torch

    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    x, y = torch.rand(BATCH, SIZES[0], device=device), torch.randint(SIZES[-1], (BATCH,), device=device)
    step = make(device)

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    times = []
    for _ in range(6):
        wait()
        start = time.perf_counter()
        for _ in range(steps // 5):
            step(x, y)
        wait()
        times.append((time.perf_counter() - start) / (steps // 5) * 1e3)
    return statistics.median(times[1:])


def numpyro(steps: int) -> float:
    """Milliseconds of a step of SVI with AutoNormal, all of them in one `lax.scan`."""
    import jax
    import jax.numpy as jnp
    import numpyro as package
    from numpyro import distributions as dist
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    x = jax.random.uniform(jax.random.key(0), (BATCH, SIZES[0]))
    y = jax.random.randint(jax.random.key(1), (BATCH,), 0, SIZES[-1])

    def model(x: Any, y: Any) -> None:
        h = x
        for number, (inputs, outputs) in enumerate(zip(SIZES, SIZES[1:], strict=False)):
            w = package.sample(f"w{number}", dist.Normal(jnp.zeros((inputs, outputs)), 1.0).to_event(2))
            b = package.sample(f"b{number}", dist.Normal(jnp.zeros(outputs), 1.0).to_event(1))
            h = h @ w + b
            h = jax.nn.relu(h) if number < len(SIZES) - 2 else h
        with package.plate("rows", ROWS, subsample_size=BATCH):
            package.sample("y", dist.Categorical(logits=h), obs=y)

    svi = SVI(model, autoguide.AutoNormal(model, init_scale=0.05), package.optim.Adam(1e-3), Trace_ELBO())
    state = svi.init(jax.random.key(2), x, y)
    run = jax.jit(lambda state: jax.lax.scan(lambda s, _: svi.update(s, x, y), state, None, length=steps)[0])
    times = []
    for _ in range(6):
        start = time.perf_counter()
        state = jax.block_until_ready(run(state))
        times.append((time.perf_counter() - start) / steps * 1e3)
    return statistics.median(times[1:])


def numpyro_tiny(steps: int) -> float:
    """Milliseconds of a step of a tiny network on 1,000 rows with scales that are learnt; see tiny.py."""
    import jax
    import jax.numpy as jnp
    import numpyro as package
    from numpyro import distributions as dist
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    sizes = (2, 5, 5, 2)
    x = jax.random.normal(jax.random.key(0), (1000, 2))
    y = (x[:, 0] > jnp.sin(x[:, 1])).astype(int)

    def model() -> None:
        h = x
        for number, (inputs, outputs) in enumerate(zip(sizes, sizes[1:], strict=False)):
            scale = package.sample(f"s{number}", dist.HalfNormal(1.0))
            w = package.sample(f"w{number}", dist.Normal(jnp.zeros((inputs, outputs)), 1.0).to_event(2))
            b = package.sample(f"b{number}", dist.Normal(jnp.zeros(outputs), 1.0).to_event(1))
            h = scale * (h @ w + b)
            h = jnp.tanh(h) if number < len(sizes) - 2 else h
        package.sample("y", dist.Categorical(logits=h), obs=y)

    svi = SVI(model, autoguide.AutoNormal(model), package.optim.Adam(3e-3), Trace_ELBO())
    state = svi.init(jax.random.key(1))
    run = jax.jit(lambda state: jax.lax.scan(lambda s, _: svi.update(s), state, None, length=steps)[0])
    times = []
    for _ in range(4):
        start = time.perf_counter()
        state = jax.block_until_ready(run(state))
        times.append((time.perf_counter() - start) / steps * 1e3)
    return statistics.median(times[1:])


SCANS: dict[str, Callable[[int], float]] = {"numpyro": numpyro, "numpyro, tiny": numpyro_tiny}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--peers", default=",".join([*PEERS, "numpyro"]))
    arguments = parser.parse_args()
    found: dict[str, float | str] = {}
    for name in [arguments.peers] if arguments.peers in SCANS else arguments.peers.split(","):
        try:
            if name in SCANS:
                found[name] = SCANS[name](arguments.steps)
            else:
                found[name] = in_torch(PEERS[name], arguments.device, arguments.steps)
        except (ImportError, RuntimeError) as error:  # a library that does not fit the others fails at its import
            found[name] = f"cannot be imported: {str(error).splitlines()[0]}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
