"""Source 004's table: how many units, on MNIST and on Fashion-MNIST."""

from bayesprop.experiments.experiment import Experiment
from bayesprop.experiments.units.page import page
from bayesprop.experiments.units.parts import parts
from bayesprop.experiments.units.settings import SCALES

__all__ = ["EXPERIMENT", "SCALES", "Experiment", "page", "parts"]

EXPERIMENT = Experiment(
    name="units",
    title="How many units: MNIST and Fashion-MNIST",
    shows="Bayes by Backprop with 200 to 1200 units a layer on MNIST and Fashion-MNIST, SGD and dropout beside it.",
    sources=("source 004, a notebook of 2021", "Blundell et al. 2015, table 1"),
    cost={"smoke": "under a minute", "laptop": "about 10 minutes on 2 cores", "paper": "some minutes on an H200"},
    scales=SCALES,
    parts=parts,
    page=page,
)
