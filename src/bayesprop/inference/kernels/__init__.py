"""Methods whose posterior is a Gaussian process: beliefs about functions."""

from bayesprop.inference.kernels.deep_kernel import DeepKernel
from bayesprop.inference.kernels.infinite_width import NNGP
from bayesprop.posteriors.dual_activations import Erf

__all__ = ["NNGP", "DeepKernel", "Erf"]
