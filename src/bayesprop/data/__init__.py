"""Data: examples that know how many they are, from memory, from a DataLoader or from a public file."""

from bayesprop.data.builtin import digits
from bayesprop.data.data import Data, as_data
from bayesprop.data.folder import data_folder
from bayesprop.data.images import Images, fashion_mnist, mnist
from bayesprop.data.labels import encode_labels
from bayesprop.data.scaling import Scaling
from bayesprop.data.stream import Stream
from bayesprop.data.tensors import as_inputs
from bayesprop.data.toy import blundell_curve, gap_regression, two_moons
from bayesprop.data.uci import Regression, uci

__all__ = [
    "Data",
    "Images",
    "Regression",
    "Scaling",
    "Stream",
    "as_data",
    "as_inputs",
    "blundell_curve",
    "data_folder",
    "digits",
    "encode_labels",
    "fashion_mnist",
    "gap_regression",
    "mnist",
    "two_moons",
    "uci",
]
