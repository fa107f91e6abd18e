"""Exams that a method of your own may sit: inherit from a suite, say how the method is made, and run pytest."""

from bayesprop.testing.linear_regression import LinearRegression
from bayesprop.testing.method_suite import MethodSuite

__all__ = ["LinearRegression", "MethodSuite"]
