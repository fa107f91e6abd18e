"""What a posterior says about new inputs."""

from bayesprop.prediction.prediction import Prediction

__all__ = ["Prediction"]
