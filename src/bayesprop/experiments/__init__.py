"""Experiments: published numbers beside what this library gets, one folder for each source or table.

bayesprop reproduce                        what there is
bayesprop reproduce table-1 --scale smoke  run one of them

A folder holds settings for each scale, what was published, the parts of a run, the page and a README. A new one is such
a folder and a line in `listing.py`; see docs/reproduce.md.
"""

from bayesprop.experiments.experiment import Bench, Experiment, Part, Settings, Unfinished
from bayesprop.experiments.record import Record
from bayesprop.experiments.running import run
from bayesprop.experiments.values import Comparison, Measured, Published, comparison_table

__all__ = [
    "Bench",
    "Comparison",
    "Experiment",
    "Measured",
    "Part",
    "Published",
    "Record",
    "Settings",
    "Unfinished",
    "comparison_table",
    "run",
]
