"""Methods: how beliefs change with data. One file each, in folders by family."""

from bayesprop.inference.averaging import SWAG
from bayesprop.inference.dropout import ConcreteDropout, GaussianDropout, MCDropout, SparseVariationalDropout
from bayesprop.inference.ensembles import DeepEnsemble, PriorFunction
from bayesprop.inference.function_space import RBF, FunctionalVI, WidePrior
from bayesprop.inference.kernels import NNGP, DeepKernel, Erf
from bayesprop.inference.laplace import Laplace
from bayesprop.inference.listing import methods
from bayesprop.inference.mcmc import HMC
from bayesprop.inference.method import About, Info, Method
from bayesprop.inference.optimizers import SGD, Adam, Torch
from bayesprop.inference.point import MAP, MLE
from bayesprop.inference.schedules import Constant, Cosine, Polynomial, Steps, Warmup
from bayesprop.inference.sgmcmc import PSGLD, SGHMC, SGLD, Cyclical
from bayesprop.inference.variational import ADVI, DVI, IVON, BayesByBackprop, Boosting, Flow, Graves

__all__ = [
    "ADVI",
    "DVI",
    "HMC",
    "IVON",
    "MAP",
    "MLE",
    "NNGP",
    "PSGLD",
    "RBF",
    "SGD",
    "SGHMC",
    "SGLD",
    "SWAG",
    "About",
    "Adam",
    "BayesByBackprop",
    "Boosting",
    "ConcreteDropout",
    "Constant",
    "Cosine",
    "Cyclical",
    "DeepEnsemble",
    "DeepKernel",
    "Erf",
    "Flow",
    "FunctionalVI",
    "GaussianDropout",
    "Graves",
    "Info",
    "Laplace",
    "MCDropout",
    "Method",
    "Polynomial",
    "PriorFunction",
    "SparseVariationalDropout",
    "Steps",
    "Torch",
    "Warmup",
    "WidePrior",
    "methods",
]
