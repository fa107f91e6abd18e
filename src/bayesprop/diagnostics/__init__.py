"""The health of an approximation: what goes wrong quietly, looked for after every fit; and whether chains agree."""

from bayesprop.diagnostics.chains import effective_sample_size, r_hat
from bayesprop.diagnostics.health import collapsed_layers, examine

__all__ = ["collapsed_layers", "effective_sample_size", "examine", "r_hat"]
