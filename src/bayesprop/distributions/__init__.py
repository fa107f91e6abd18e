"""Densities on the real line and of scales, as plain functions of tensors: one file per family."""

from bayesprop.distributions import flat, laplace, normal, scale_mixture, student_t
from bayesprop.distributions.elementwise import Elementwise, Family
from bayesprop.distributions.hyperpriors import Gamma, HalfCauchy, HalfNormal, Hyperprior, InverseGamma, Product

__all__ = [
    "Elementwise",
    "Family",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "Hyperprior",
    "InverseGamma",
    "Product",
    "flat",
    "laplace",
    "normal",
    "scale_mixture",
    "student_t",
]
