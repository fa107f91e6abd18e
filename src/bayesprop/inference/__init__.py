"""Methods: how beliefs change with data. One file each, in folders by family."""

from bayesprop.inference.method import Info, Method
from bayesprop.inference.optimizers import SGD, Adam, Torch
from bayesprop.inference.schedules import Constant, Cosine, Steps, Warmup
from bayesprop.inference.variational import BayesByBackprop

__all__ = ["SGD", "Adam", "BayesByBackprop", "Constant", "Cosine", "Info", "Method", "Steps", "Torch", "Warmup"]
