import re

from typer.testing import CliRunner

from bayesprop.cli.application import application
from bayesprop.experiments import commands
from bayesprop.experiments.record import Record


def run(*arguments):
    return CliRunner().invoke(application, list(arguments))


def test_experiments_are_listed():
    found = run("reproduce")
    assert found.exit_code == 0
    assert "table-1" in found.stdout


def test_options_reach_the_run(monkeypatch, tmp_path):
    told = {}

    def reproduce(name, scale, **options):
        told.update(options, name=name, scale=scale)
        return Record(name, scale, {}, {}, ("a-part",))

    monkeypatch.setattr(commands, "reproduce", reproduce)
    found = run("reproduce", "table-1", "--folder", str(tmp_path), "--seeds", "2", "--minutes", "1", "--parts", "sgd-*")
    assert found.exit_code == 0, found.output
    assert (told["name"], told["scale"], told["seeds"], told["minutes"]) == ("table-1", "smoke", 2, 1.0)
    assert (told["folder"], told["parts"], told["device"], told["page"]) == (tmp_path, "sgd-*", None, True)
    assert told["changes"] == ()
    unfinished = run("reproduce", "table-1", "--scale", "paper", "--no-page", "--set", "epochs=9", "--set", "seeds=1")
    assert unfinished.exit_code == 3, "a part is missing, and all were asked for"
    assert told["changes"] == ["epochs=9", "seeds=1"]
    assert (told["scale"], told["page"]) == ("paper", False)


def test_pages_are_made_again(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(commands, "show", lambda place, **options: asked.append((place, options)) or "a page")
    assert run("reproduce", "table-1", "--show").stdout == "a page\n"
    assert run("report", str(tmp_path)).stdout == "a page\n"
    run("report", str(tmp_path), "--figures", str(tmp_path / "figures"))
    plain = {"page": None, "figures": None}
    assert asked == [
        ("table-1", {"scale": None}),
        (tmp_path, plain),
        (tmp_path, {**plain, "figures": tmp_path / "figures"}),
    ]


def test_refusals_are_messages(tmp_path):
    found = run("reproduce", "tabel-1")
    assert found.exit_code == 1
    assert found.stderr.startswith("bayesprop: there is no experiment 'tabel-1'")
    assert run("report", str(tmp_path)).exit_code == 1


def test_help():
    text = re.sub(r"\x1b\[[0-9;]*m", "", run("reproduce", "--help").stdout)
    for option in ("--scale", "--show", "--folder", "--device", "--seeds", "--minutes", "--parts"):
        assert option in text
