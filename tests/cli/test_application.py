import re

import pytest
import typer
from typer.testing import CliRunner

import bayesprop
from bayesprop.cli.application import Verbs, application
from bayesprop.errors import ConfigurationError


def run(*arguments, app=application):
    return CliRunner().invoke(app, list(arguments))


def plain(text):
    """Without boxes, colours and line breaks."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


@pytest.fixture
def failing():
    """A command line of one verb that raises what the test puts into the list."""
    errors = []
    app = typer.Typer(cls=Verbs, pretty_exceptions_enable=False)
    app.callback()(lambda: None)

    @app.command()
    def fail():
        raise errors[0]

    return app, errors


def test_version():
    found = run("--version")
    assert (found.exit_code, found.stdout) == (0, f"bayesprop {bayesprop.__version__}\n")


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_the_verbs(option):
    found = run(option)
    assert found.exit_code == 0
    assert "demo Train a Bayesian network on handwritten digits" in plain(found.stdout)


def test_help_of_the_demo():
    found = run("demo", "--help")
    assert found.exit_code == 0
    for option in ("--folder", "--epochs", "--seed"):
        assert option in found.stdout
    assert "[default: runs/demo]" in plain(found.stdout)


def test_nothing_to_do_is_answered_with_help():
    found = run()
    assert found.exit_code == 2
    assert "Usage: bayesprop" in plain(found.output)


def test_a_misspelt_verb():
    found = run("dmo")
    assert found.exit_code == 2
    assert "No such command 'dmo'." in plain(found.output)


@pytest.mark.parametrize("option", ["--epochs", "--seed"])
def test_numbers_that_cannot_be_are_refused_before_anything_happens(option, tmp_path):
    found = run("demo", option, "-1", "--folder", str(tmp_path / "new"))
    assert found.exit_code == 2
    assert f"Invalid value for '{option}'" in plain(found.output)
    assert not list(tmp_path.iterdir())


def test_an_error_of_this_library_is_a_message(failing):
    app, errors = failing
    errors.append(ConfigurationError("this cannot work", received="3", write="4"))
    found = run("fail", app=app)
    assert found.exit_code == 1
    assert found.stderr == "bayesprop: this cannot work\n  received: 3\n  write: 4\n"
    assert found.stdout == ""


def test_an_interruption_has_the_exit_code_of_interruptions(failing):
    app, errors = failing
    errors.append(KeyboardInterrupt())
    found = run("fail", app=app)
    assert (found.exit_code, found.stderr) == (130, "bayesprop: interrupted\n")


def test_a_bug_is_not_hidden(failing):
    app, errors = failing
    errors.append(RuntimeError("a bug"))
    found = run("fail", app=app)
    assert found.exit_code == 1
    assert found.exception is errors[0]
