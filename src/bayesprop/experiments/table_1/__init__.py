"""Table 1 and figure 2 of Blundell et al. (2015): MNIST by SGD, dropout and Bayes by Backprop."""

from bayesprop.experiments.experiment import Experiment
from bayesprop.experiments.table_1.page import page
from bayesprop.experiments.table_1.parts import parts
from bayesprop.experiments.table_1.settings import SCALES

__all__ = ["EXPERIMENT", "SCALES", "Experiment", "page", "parts"]

EXPERIMENT = Experiment(
    name="table-1",
    title="MNIST: table 1 and figure 2",
    shows="MNIST test error of SGD, dropout and Bayes by Backprop with two priors, for three widths.",
    sources=("Blundell et al. 2015, table 1 and figure 2", "its re-implementations"),
    cost={"smoke": "under a minute", "laptop": "about 10 minutes on 2 cores", "paper": "about 15 minutes on an H200"},
    scales=SCALES,
    parts=parts,
    page=page,
)
