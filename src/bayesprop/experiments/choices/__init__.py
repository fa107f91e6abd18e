"""Source 000's "seemingly arbitrary choices", each with several seeds."""

from bayesprop.experiments.choices.page import page
from bayesprop.experiments.choices.parts import parts
from bayesprop.experiments.choices.settings import SCALES
from bayesprop.experiments.experiment import Experiment

__all__ = ["EXPERIMENT", "SCALES", "Experiment", "page", "parts"]

EXPERIMENT = Experiment(
    name="choices",
    title="Seemingly arbitrary choices",
    shows="Which choices of source 000 (KL weights, prior, pixels, samples, start) change the error beyond noise.",
    sources=("source 000, sections 3.2 to 3.4",),
    cost={"smoke": "under a minute", "laptop": "about 10 minutes", "paper": "estimated 20 minutes on an H200"},
    scales=SCALES,
    parts=parts,
    page=page,
)
