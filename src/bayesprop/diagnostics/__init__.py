"""Diagnostics: the health of an approximation."""

from bayesprop.diagnostics.health import collapsed_layers, examine

__all__ = ["collapsed_layers", "examine"]
