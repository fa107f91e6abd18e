"""The health of an approximation: what goes wrong quietly, looked for after every fit; whether chains agree; what is
known about each weight."""

from bayesprop.diagnostics.chains import effective_sample_size, r_hat
from bayesprop.diagnostics.health import collapsed_layers, examine
from bayesprop.diagnostics.weights import decibels, signal_to_noise

__all__ = ["collapsed_layers", "decibels", "effective_sample_size", "examine", "r_hat", "signal_to_noise"]
