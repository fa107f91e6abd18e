"""The 324 settings of Blundell et al. (2015), which source 000 could not afford."""

from bayesprop.experiments.experiment import Experiment
from bayesprop.experiments.grid.page import page
from bayesprop.experiments.grid.parts import parts
from bayesprop.experiments.grid.settings import SCALES

__all__ = ["EXPERIMENT", "SCALES", "Experiment", "page", "parts"]

EXPERIMENT = Experiment(
    name="grid",
    title="The 324 settings of the paper",
    shows="Error against each hyper-parameter of the paper's grid, the best ten settings, and what all of them cost.",
    sources=("Blundell et al. 2015, section 5.1 (axes only)", "source 000, section 3.1"),
    cost={"smoke": "under a minute", "laptop": "about 5 minutes", "paper": "estimated 20 minutes on an H200"},
    scales=SCALES,
    parts=parts,
    page=page,
)
