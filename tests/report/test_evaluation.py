import pytest
import torch

from bayesprop import metrics
from bayesprop.data import Data
from bayesprop.errors import CapabilityError, ConfigurationError, DataError
from bayesprop.report.evaluation import Evaluation, evaluate, rows_of, separation

from .conftest import NAMES


@pytest.fixture
def evaluation(class_posterior, blobs) -> Evaluation:
    return evaluate(class_posterior, blobs, draws=20, seed=3)


def test_scores_are_those_of_the_predictive_distribution(evaluation, class_posterior, blobs):
    inputs, labels = blobs
    prediction = class_posterior.predict(inputs, 20, seed=3)
    assert evaluation.rows == 60
    torch.testing.assert_close(evaluation.prediction.mean, prediction.mean, rtol=0, atol=0)
    assert evaluation.accuracy == metrics.accuracy(prediction.mean, labels)
    assert 0.4 < evaluation.accuracy < 1, "the fixtures are made to show both"
    assert evaluation.negative_log_likelihood == metrics.negative_log_likelihood(prediction.mean, labels)
    assert evaluation.brier == metrics.brier(prediction.mean, labels)
    assert evaluation.calibration_error == metrics.expected_calibration_error(prediction.mean, labels)
    torch.testing.assert_close(evaluation.confidence, prediction.mean.max(1).values, rtol=0, atol=0)
    assert int(evaluation.right.sum()) == round(60 * evaluation.accuracy)
    assert torch.equal(evaluation.right, evaluation.predicted == labels)


def test_epistemic_share_is_a_ratio_of_means(evaluation):
    prediction = evaluation.prediction
    expected = prediction.epistemic.sum() / prediction.total.sum()
    assert evaluation.epistemic_share == pytest.approx(expected.item(), rel=1e-12)
    assert 0.01 < evaluation.epistemic_share < 0.99


def test_a_posterior_that_is_a_point_has_no_epistemic_share(class_posterior, blobs):
    assert evaluate(class_posterior.at_mean(), blobs, draws=3).epistemic_share == pytest.approx(0.0, abs=1e-7)


def test_labels_may_be_names_or_positions_or_a_column(class_posterior, blobs, evaluation):
    inputs, labels = blobs
    by_name = [NAMES[label] for label in labels.tolist()]
    for given in (by_name, labels.int(), labels[:, None], Data(inputs, by_name), Data(inputs, labels)):
        data = given if isinstance(given, Data) else (inputs, given)
        assert torch.equal(evaluate(class_posterior, data, draws=2).labels, labels)
    assert evaluation.class_names == NAMES


def test_classes_of_other_data_are_compared_by_name(class_posterior, blobs):
    """Test data that hold fewer classes number them differently."""
    inputs, labels = blobs
    some = labels > 0
    data = Data(inputs[some], [NAMES[label] for label in labels[some].tolist()])
    assert data.classes is not None
    assert len(data.classes) == 2
    assert torch.equal(evaluate(class_posterior, data, draws=2).labels, labels[some])


def test_classes_without_names_are_numbered(class_posterior, blobs):
    class_posterior.context.classes = None
    assert evaluate(class_posterior, blobs, draws=2).class_names == ["0", "1", "2"]


def test_inputs_keep_the_users_units(class_posterior, blobs):
    inputs, labels = blobs
    data = Data(inputs * 100 + 7, labels, standardize="inputs")
    class_posterior.context.scaling = data.scaling
    found = evaluate(class_posterior, data, draws=2)
    torch.testing.assert_close(found.inputs, inputs * 100 + 7)


def test_foreign_rows_are_predicted_by_the_same_draws(class_posterior, blobs):
    inputs, labels = blobs
    foreign = {"same": inputs, "noise": Data(inputs.flip(1), labels)}
    found = evaluate(class_posterior, blobs, foreign=foreign, draws=20, seed=3)
    assert list(found.foreign) == ["same", "noise"]
    torch.testing.assert_close(found.foreign["same"].prediction.mean, found.prediction.mean, rtol=0, atol=0)
    assert torch.equal(found.foreign["noise"].inputs, inputs.flip(1))
    assert found.foreign["noise"].prediction.num_draws == 20


def test_separation_is_the_auroc_of_the_epistemic_uncertainty(class_posterior, blobs):
    inputs, _ = blobs
    found = evaluate(class_posterior, blobs, foreign={"same": inputs, "large": 30 * inputs.roll(13, 1)}, draws=30)
    assert separation(found, found.foreign["same"].prediction) == 0.5
    large = found.foreign["large"].prediction
    ordinary, strange = found.prediction.epistemic, large.epistemic
    pairs = (strange[:, None] > ordinary).double() + 0.5 * (strange[:, None] == ordinary).double()
    assert separation(found, large) == pytest.approx(pairs.mean().item(), rel=1e-12)


def test_foreign_inputs_need_a_name(class_posterior, blobs):
    for foreign in (blobs[0], [blobs[0]], {1: blobs[0]}):
        with pytest.raises(ConfigurationError) as caught:
            evaluate(class_posterior, blobs, foreign=foreign)
        assert str(caught.value).splitlines() == [
            "foreign inputs are given by the name of their kind",
            f"  received: a {type(foreign).__name__}",
            "  expected: a mapping from names to inputs",
            '  write: foreign={"noise": noise}',
        ]


def test_quantities_are_refused(line, points):
    with pytest.raises(CapabilityError) as caught:
        evaluate(line, points)
    assert str(caught.value).splitlines() == [
        "this evaluation counts right and wrong classes",
        "  received: Gaussian(scale=0.5), a regression",
        "  expected: a posterior of a model with classes",
        "  write: bp.Model(network, likelihood=bp.likelihoods.Categorical())",
    ]


def test_several_labels_in_a_row_are_refused(class_posterior, blobs):
    inputs, labels = blobs
    with pytest.raises(DataError) as caught:
        evaluate(class_posterior, (inputs, torch.stack((labels, labels), 1)), draws=2)
    assert str(caught.value).splitlines() == [
        "a report of classes needs one label for each row",
        "  received: labels (60, 2), probabilities (60, 3)",
        "  expected: labels (n,) and probabilities (n, K)",
    ]


def test_a_stream_is_refused(blobs):
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*blobs), batch_size=10)
    with pytest.raises(DataError) as caught:
        rows_of(loader)
    assert str(caught.value).splitlines() == [
        "a report needs all rows at once",
        "  received: a stream of batches",
        "  write: (inputs, targets)",
    ]
