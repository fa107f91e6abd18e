"""What others say that an epoch of MNIST costs: two hidden layers, seconds an epoch."""

from __future__ import annotations

from bayesprop.experiments.values import Published

__all__ = ["EPOCHS", "RATIO"]

# (kind of training, units of each hidden layer)
EPOCHS: dict[tuple[str, int], tuple[Published, ...]] = {
    ("mixture-2", 400): (
        Published(48.0, "source 000, 75 epochs an hour on a P100, 2 samples", "S"),
        Published(23.0, "github.com/aadityasingh/Bayes-Nets, P100, 2 samples", "R"),
    ),
    ("mixture-2", 1200): (
        Published(3600.0 / 35.0, "source 000, 35 epochs an hour on a P100, 2 samples", "S"),
        Published(47.0, "github.com/aadityasingh/Bayes-Nets, P100, 2 samples", "R"),
    ),
    ("gaussian", 400): (Published(112.0, "source 004, on a processor of Colab, 1 sample", "S"),),
    ("sgd", 1200): (Published(4.17, "github.com/JavierAntoran/Bayesian-Neural-Networks, MAP", "R"),),
}
RATIO = Published(2.0, "Blundell et al. 2015, section 5.1: a step is about two times slower than with dropout", "P")
