"""Figure 5 of Blundell et al. (2015), source 001's version of it, and the gap between two clusters."""

from bayesprop.experiments.experiment import Experiment
from bayesprop.experiments.regression.page import page
from bayesprop.experiments.regression.parts import parts
from bayesprop.experiments.regression.settings import SCALES

__all__ = ["EXPERIMENT", "SCALES", "Experiment", "page", "parts"]

EXPERIMENT = Experiment(
    name="regression",
    title="Regression: bands where there are data, and where there are none",
    shows="The paper's curve with its bands, source 001's version, and the gap between two clusters by every method.",
    sources=("Blundell et al. 2015, figure 5", "source 001", "Foong et al. 2019"),
    cost={"smoke": "half a minute", "laptop": "about 6 minutes on 2 cores", "paper": "about 15 minutes on 2 cores"},
    scales=SCALES,
    parts=parts,
    page=page,
)
