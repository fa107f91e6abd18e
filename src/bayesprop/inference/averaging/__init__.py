"""Averages along the path of plain training: a Gaussian from the weights that descent passes through."""

from bayesprop.inference.averaging.swag import SWAG

__all__ = ["SWAG"]
