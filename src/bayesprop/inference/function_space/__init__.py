"""Methods whose prior is over functions."""

from bayesprop.inference.function_space.functional_vi import FunctionalVI
from bayesprop.inference.function_space.process_prior import RBF, WidePrior

__all__ = ["RBF", "FunctionalVI", "WidePrior"]
