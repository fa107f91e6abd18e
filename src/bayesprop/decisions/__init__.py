"""Decisions: what to do about the uncertainty. For now: which weights are not worth keeping.

pruned = bp.decisions.prune(posterior, 0.95)                    # |mean| / std decides
bp.decisions.pruning_curve(posterior, (inputs, labels))         # what each share costs
"""

from bayesprop.decisions.pruning import prune
from bayesprop.decisions.pruning_curve import PrunedScore, pruning_curve

__all__ = ["PrunedScore", "prune", "pruning_curve"]
