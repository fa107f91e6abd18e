"""What source 000 (A. Singh, "Bayesian Neural Networks") found for its choices; test error in percent, 400 units."""

from __future__ import annotations

from bayesprop.experiments.values import Published

__all__ = ["DIFFERENCES", "ERRORS", "NOISE"]

SOURCE = "source 000"

ERRORS: dict[str, Published] = {
    "base": Published(2.03, f"{SOURCE}, table 1", "S"),
    "gaussian": Published(1.69, f"{SOURCE}, section 3.3", "S"),
}
# To the base, in points: negative where the variant is better.
DIFFERENCES: dict[str, Published] = {
    "kl-geometric": Published(-0.3, f"{SOURCE}, section 3.2", "S"),
    "gaussian": Published(-0.34, f"{SOURCE}, section 3.3 and table 1", "S"),
    "pixels-255": Published(0.15, f"{SOURCE}, section 3.4", "S", "0.1 to 0.2"),
    "pixels-standardized": Published(0.15, f"{SOURCE}, section 3.4", "S", "0.1 to 0.2"),
}
NOISE = Published(0.1, f"{SOURCE}, section 3.3: the same network again", "S")
