"""Figure 3 of Blundell et al. (2015), figure 1 of source 000 and the density plot of source 004: trained weights."""

from bayesprop.experiments.densities.page import page
from bayesprop.experiments.densities.parts import parts
from bayesprop.experiments.densities.settings import SCALES
from bayesprop.experiments.experiment import Experiment

__all__ = ["EXPERIMENT", "SCALES", "Experiment", "page", "parts"]

EXPERIMENT = Experiment(
    name="densities",
    title="MNIST: densities of trained weights",
    shows="How weights are distributed after SGD, dropout and Bayes by Backprop, and over the epochs for two priors.",
    sources=("Blundell et al. 2015, figure 3", "source 000, figure 1", "source 004, density plot"),
    cost={"smoke": "20 seconds", "laptop": "about 8 minutes on 2 cores", "paper": "about 4 minutes on an H200"},
    scales=SCALES,
    parts=parts,
    page=page,
)
