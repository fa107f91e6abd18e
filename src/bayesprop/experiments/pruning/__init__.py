"""Table 2 of Blundell et al. (2015) and table 1 of source 000: how many weights can go, and by which order."""

from bayesprop.experiments.experiment import Experiment
from bayesprop.experiments.pruning.page import page
from bayesprop.experiments.pruning.parts import parts
from bayesprop.experiments.pruning.settings import SCALES

__all__ = ["EXPERIMENT", "SCALES", "Experiment", "page", "parts"]

EXPERIMENT = Experiment(
    name="pruning",
    title="MNIST: pruning by signal to noise and by magnitude",
    shows="Test error without 0 to 99 % of the weights, and under which prior and start which order of removal wins.",
    sources=("Blundell et al. 2015, table 2 and figure 4", "source 000, table 1 and figures 2 and 3"),
    cost={"smoke": "half a minute", "laptop": "about 10 minutes on 2 cores", "paper": "about 10 minutes on an H200"},
    scales=SCALES,
    parts=parts,
    page=page,
)
