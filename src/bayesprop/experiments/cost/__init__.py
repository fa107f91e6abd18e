"""What an epoch costs, deterministic and Bayesian, on the devices of this machine."""

from bayesprop.experiments.cost.page import page
from bayesprop.experiments.cost.parts import parts
from bayesprop.experiments.cost.settings import SCALES
from bayesprop.experiments.experiment import Experiment

__all__ = ["EXPERIMENT", "SCALES", "Experiment", "page", "parts"]

EXPERIMENT = Experiment(
    name="cost",
    title="What an epoch costs",
    shows="Seconds an epoch and epochs an hour of SGD, dropout and Bayes by Backprop, and what table 1 cost.",
    sources=("source 000, section 3.1", "source 004", "Blundell et al. 2015, section 5.1"),
    cost={"smoke": "10 seconds", "laptop": "about 2 minutes on 2 cores", "paper": "about 5 minutes on an H200"},
    scales=SCALES,
    parts=parts,
    page=page,
)
