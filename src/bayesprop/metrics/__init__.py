"""Scores of predictions, as plain functions of tensors or arrays: they know nothing of models."""

from bayesprop.metrics.calibration import ReliabilityCurve, expected_calibration_error, reliability_curve
from bayesprop.metrics.classification import accuracy, brier, error, negative_log_likelihood
from bayesprop.metrics.ranking import RiskCoverage, auroc, risk_coverage
from bayesprop.metrics.regression import (
    crps_from_samples,
    crps_gaussian,
    interval_coverage,
    interval_score,
    interval_width,
    root_mean_squared_error,
)

__all__ = [
    "ReliabilityCurve",
    "RiskCoverage",
    "accuracy",
    "auroc",
    "brier",
    "crps_from_samples",
    "crps_gaussian",
    "error",
    "expected_calibration_error",
    "interval_coverage",
    "interval_score",
    "interval_width",
    "negative_log_likelihood",
    "reliability_curve",
    "risk_coverage",
    "root_mean_squared_error",
]
