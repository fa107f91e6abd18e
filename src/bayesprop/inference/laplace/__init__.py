"""Gaussians around a mode, with the curvature of the log joint there."""

from bayesprop.inference.laplace.laplace import Laplace

__all__ = ["Laplace"]
