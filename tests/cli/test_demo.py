import io
import re
import signal
import sys
import warnings

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import bayesprop as bp
from bayesprop.cli import demo as module
from bayesprop.cli.application import application
from bayesprop.cli.demo import digits_network, foreign_digits, loading_lines
from bayesprop.training import fit


def run(folder, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return CliRunner().invoke(application, ["demo", "--folder", str(folder), *arguments])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One short demo that several tests look at: the folder, and what was printed."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    found = run(folder, "--epochs", "3", "--seed", "1")
    assert found.exception is None, found.output
    return folder, found


def test_it_prints_how_good_it_is(finished):
    _, found = finished
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert lines[:2] == [
        "1,348 handwritten digits to learn from, 449 to be judged by.",
        "A network of 17,610 weights, each of them a distribution.",
    ]
    scores = {line.split("  ")[0]: line for line in lines}
    accuracy = re.search(r"([0-9.]+)% +([0-9]+) of 449 test pictures", scores["accuracy"])
    assert accuracy is not None
    assert float(accuracy[1]) == pytest.approx(100 * int(accuracy[2]) / 449, abs=0.051)
    assert int(accuracy[2]) > 250, "three epochs: far above the 45 of blind guesses"
    assert re.search(r" [0-9]\.[0-9]{3} +nats a picture; guessing blindly gives 2.303", scores["NLL"])
    assert re.search(r" [0-9.]+% +mean gap between", scores["calibration error"])
    assert re.search(r" [0-9]+% +of the uncertainty is about the weights", scores["epistemic"])


def test_it_prints_what_happens_with_foreign_pictures(finished):
    _, found = finished
    rows = {line.split("  ")[0]: line.split()[-1] for line in found.stdout.splitlines() if line}
    kinds = ["lying on their side", "black and white exchanged", "pixels shuffled"]
    assert all(0.0 <= float(rows[kind]) <= 1.0 for kind in kinds)
    assert "as they are" in rows


def test_it_shows_its_progress(finished):
    """The terms of the objective, and scores of the validation rows, on standard error."""
    _, found = finished
    for word in ("epoch", "ELBO", "data term", "KL", "val NLL", "val error"):
        assert word in found.stderr.replace("\n", " ")


def test_it_trains_on_one_thread_and_gives_the_others_back(tmp_path, monkeypatch):
    during = []

    def watched(*arguments, **settings):
        during.append(torch.get_num_threads())
        return fit(*arguments, **settings)

    monkeypatch.setattr(module, "fit", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = run(tmp_path, "--epochs", "1")
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert found.exception is None, found.output
    assert (during, after) == ([1], 2)


def test_it_leaves_a_posterior_and_says_how_to_load_it(finished, capsys):
    folder, found = finished
    assert sorted(path.name for path in folder.iterdir()) == ["digits.bayes", "digits.html"]
    lines = loading_lines(folder / "digits.bayes")
    assert len(lines) == 3
    printed = [line.strip() for line in found.stdout.splitlines()]
    assert printed[-3:] == lines
    names = {}
    exec("\n".join(lines), names)
    posterior = names["posterior"]
    assert posterior.context.num_data == 1348
    assert posterior.context.seed == 1
    assert posterior.context.history[-1]["epoch"] == 3
    test = bp.data.digits().split(0.25, 1)[1]
    right = int((posterior.predict(test, 100, seed=1).mean.argmax(1) == test.targets).sum())
    assert f" {right} of 449 test pictures" in found.stdout


def test_it_leaves_a_page(finished):
    folder, found = finished
    text = (folder / "digits.html").read_text(encoding="utf-8")
    assert "<h1>Handwritten digits</h1>" in text
    assert "pixels shuffled: the most certain" in text
    assert f"The page with pictures: {folder / 'digits.html'}" in found.stdout


def test_the_same_seed_prints_the_same(finished, tmp_path):
    """All but the places where things were saved."""
    _, first = finished
    second = run(tmp_path, "--epochs", "3", "--seed", "1")
    parts = [found.stdout.split("The page with pictures")[0] for found in (first, second)]
    assert parts[0] == parts[1]


def test_defaults_of_fit_are_left_alone(monkeypatch, tmp_path):
    """Without --epochs, `fit` is not told how many."""
    told = {}

    def stop(model, data, **settings):
        told.update(settings)
        raise bp.errors.DivergenceError("enough")

    monkeypatch.setattr(module, "fit", stop)
    found = run(tmp_path)
    assert (found.exit_code, found.stderr) == (1, "bayesprop: enough\n")
    assert sorted(told) == ["progress", "seed", "validation"]
    assert told["seed"] == 0
    run(tmp_path, "--epochs", "7")
    assert told["epochs"] == 7


def test_an_interruption_keeps_what_was_learnt(monkeypatch, tmp_path):
    """Ctrl-C in the fourth step of a training of a thousand epochs."""

    def interrupt(event):
        if event.kind == "step" and event.step == 4:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(module, "fit", lambda *a, **settings: fit(*a, **settings, observers=[interrupt]))
    found = run(tmp_path, "--epochs", "1000")
    assert found.exit_code == 0, found.output
    assert "Note: interrupted in epoch 1 of 1000; this is what was learnt so far" in found.stdout
    assert (tmp_path / "digits.html").exists()
    posterior = bp.load(tmp_path / "digits.bayes", network=digits_network())
    assert posterior.context.history == []


def test_warnings_are_printed_as_sentences(monkeypatch):
    """As they are: what looks like markup is text."""

    def fake(*arguments, **settings):
        warnings.warn("[bold]look[/bold] out", bp.errors.BayespropWarning, stacklevel=1)
        return "the posterior"

    monkeypatch.setattr(module, "fit", fake)
    console = Console(file=io.StringIO(), width=80)
    assert module._train(None, None, None, epochs=None, seed=0, console=console) == "the posterior"
    assert console.file.getvalue() == "\nNote: [bold]look[/bold] out\n"


@pytest.mark.parametrize("missing", [["sklearn"], ["matplotlib", "jinja2"]])
def test_what_is_missing_is_said_before_anything_happens(monkeypatch, tmp_path, missing):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    found = run(tmp_path / "new")
    assert found.exit_code == 1
    names = "scikit-learn, which is" if missing == ["sklearn"] else "matplotlib and jinja2, which are"
    assert found.stderr.splitlines() == [
        f"bayesprop: the demo needs {names} not installed",
        '  expected: the extra "cli"',
        '  write: pip install "bayesprop[cli]"',
    ]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_is_refused_before_anything_happens(tmp_path):
    (tmp_path / "file").write_text("")
    found = run(tmp_path / "file" / "folder")
    assert found.exit_code == 1
    assert found.stderr.splitlines() == [
        f"bayesprop: the folder {tmp_path / 'file' / 'folder'} cannot be made",
        "  received: Not a directory",
        "  write: bayesprop demo --folder another",
    ]


def test_foreign_pictures_keep_their_ink():
    digits = bp.data.digits().inputs[:50]
    foreign = foreign_digits(digits, seed=3)
    assert list(foreign) == ["lying on their side", "black and white exchanged", "pixels shuffled"]
    side, exchanged, shuffled = foreign.values()
    turned = side.reshape(50, 8, 8).transpose(1, 2).flip(2).reshape(50, 64)  # turned back, to the right
    assert torch.equal(turned, digits)
    torch.testing.assert_close(exchanged + digits, torch.ones(50, 64))
    assert torch.equal(shuffled.sort(1).values, digits.sort(1).values)
    assert not bool((shuffled == digits).all(1).any())
    numbered = foreign_digits(torch.arange(64.0).repeat(2, 1))["pixels shuffled"]
    assert not torch.equal(numbered[0], numbered[1]), "each picture has an order of its own"
    assert torch.equal(foreign_digits(digits, seed=3)["pixels shuffled"], shuffled)
    assert not torch.equal(foreign_digits(digits, seed=4)["pixels shuffled"], shuffled)
