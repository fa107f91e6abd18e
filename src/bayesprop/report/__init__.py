"""Report: a page to look at, in one file that needs nothing else.

    report.write(posterior, (inputs, targets), "report.html")

matplotlib and jinja2 come with the extra "report" and are imported when a page is made.
"""

from bayesprop.report.blocks import Headline, Number, Picture, Pictures, Plot, Section, Table
from bayesprop.report.classification import class_sections
from bayesprop.report.document import page_sections, write
from bayesprop.report.drawing import to_png
from bayesprop.report.evaluation import Evaluation, evaluate
from bayesprop.report.figure_files import save_figures
from bayesprop.report.page import render, save
from bayesprop.report.regression import regression_sections
from bayesprop.report.regression_evaluation import RegressionEvaluation, evaluate_regression
from bayesprop.report.weights import pruning_section, weights_section

__all__ = [
    "Evaluation",
    "Headline",
    "Number",
    "Picture",
    "Pictures",
    "Plot",
    "RegressionEvaluation",
    "Section",
    "Table",
    "class_sections",
    "evaluate",
    "evaluate_regression",
    "page_sections",
    "pruning_section",
    "regression_sections",
    "render",
    "save",
    "save_figures",
    "to_png",
    "weights_section",
    "write",
]
