"""What a Gaussian around a mode knows besides itself: the log marginal likelihood that it implies.

A Laplace approximation gives log p(D) as a by-product, by which models, priors and noise can be compared without
validation data. Posteriors that may carry it inherit from `WithEvidence`.
"""

from __future__ import annotations

from torch import Tensor

from bayesprop.errors import CapabilityError

__all__ = ["WithEvidence"]


class WithEvidence:
    """`evidence` (particles, 2): log p(D) in nats, and the factor on the prior's precision under which it holds; None
    for posteriors that were found in another way."""

    evidence: Tensor | None = None

    @property
    def log_evidence(self) -> Tensor:
        """log p(D) of the full data in nats, one number a particle."""
        return self._evidence("log_evidence")[:, 0]

    @property
    def prior_precision(self) -> Tensor:
        """The factor on the prior's precision, one number a particle: 1 for the prior as it was given."""
        return self._evidence("prior_precision")[:, 1]

    def _evidence(self, asked: str) -> Tensor:
        if self.evidence is None:
            raise CapabilityError(
                f"this {type(self).__name__} has no {asked}",
                received="a posterior that was not made by a Laplace approximation",
                write="bp.fit(model, data, bp.inference.Laplace(bp.inference.MAP())).log_evidence",
            )
        return self.evidence

    def _evidence_tensors(self) -> dict[str, Tensor]:
        return {} if self.evidence is None else {"evidence": self.evidence}
