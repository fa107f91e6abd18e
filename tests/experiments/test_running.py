import dataclasses

import pytest

from bayesprop.errors import ConfigurationError
from bayesprop.experiments.experiment import Part
from bayesprop.experiments.record import read_json
from bayesprop.experiments.running import chosen, run


def test_every_part_is_stored(experiment, tmp_path, console):
    calls = []
    record = run(experiment(calls), "smoke", tmp_path / "run", console=console)
    assert calls == ["square-1", "square-2", "square-3", "sum"]
    assert record.result("sum") == {"sum": 14}
    assert record.missing == ()
    part = read_json(tmp_path / "run" / "square-2.json")
    assert part["result"] == {"squares": [4, 4]}
    assert {"what", "seconds", "command", "date", "commit", "device", "threads", "torch"} <= part.keys()
    assert not (tmp_path / "run" / "square-2").exists(), "checkpoints go when a part is done"
    assert "2/4  square-2: 2 squared" in console.file.getvalue()


def test_an_interrupted_run_goes_on_with_what_is_missing(experiment, tmp_path, console):
    calls = []
    made = experiment(calls, {"square-2"})
    record = run(made, "smoke", tmp_path, console=console)
    assert record.missing == ("square-2", "square-3", "sum")
    assert (tmp_path / "square-2" / "training.checkpoint").exists()
    assert "stopped by a test; the same command goes on from here" in console.file.getvalue()
    before = read_json(tmp_path / "square-2" / "seconds.json")["seconds"]
    record = run(made, "smoke", tmp_path, console=console)
    assert calls == ["square-1", "square-2", "square-2", "square-3", "sum"]
    assert record.missing == ()
    assert record.parts["square-2"]["seconds"] >= round(before, 3)
    assert "1/4  square-1: done before" in console.file.getvalue()


def test_a_bug_is_no_interruption(experiment, tmp_path, console):
    made = experiment()

    def broken(settings):
        return [Part("a", "", lambda bench: 1 / 0)]

    with pytest.raises(ZeroDivisionError):
        run(dataclasses.replace(made, parts=broken), "smoke", tmp_path, console=console)
    assert not (tmp_path / "a.json").exists()


def test_some_parts_and_their_needs(experiment, tmp_path, console):
    calls = []
    record = run(experiment(calls), "smoke", tmp_path, parts="square-2", console=console)
    assert calls == ["square-2"]
    assert record.missing == ("square-1", "square-3", "sum")
    run(experiment(calls), "smoke", tmp_path, parts="sum", console=console)
    assert calls == ["square-2", "square-1", "square-3", "sum"]


def test_patterns(experiment):
    parts = experiment().parts(experiment().settings("smoke"))
    assert [part.name for part in chosen(parts, "*-3, square-1", "squares")] == ["square-1", "square-3"]
    with pytest.raises(ConfigurationError, match=r"no part of squares is called like that\n  received: --parts 'cube'"):
        chosen(parts, "cube", "squares")


def test_no_time(experiment, tmp_path, console):
    record = run(experiment(), "smoke", tmp_path, minutes=0.0, console=console)
    assert len(record.missing) == 4
    assert "the time is over" in console.file.getvalue()


def test_other_seeds_and_scales_belong_into_other_folders(experiment, tmp_path, console):
    run(experiment(), "smoke", tmp_path, seeds=3, console=console)
    for scale, seeds in (("smoke", None), ("paper", 3)):
        with pytest.raises(ConfigurationError, match="belongs to another run"):
            run(experiment(), scale, tmp_path, seeds=seeds, console=console)
    assert run(experiment(), "smoke", tmp_path, seeds=3, console=console).missing == ()


@pytest.mark.parametrize("names", [("a", "a"), ("settings",), ("a", "b")])
def test_parts_that_cannot_be_run_are_refused(experiment, tmp_path, console, names):
    parts = [Part(name, "", lambda bench: {}, ("c",) if name == "b" else ()) for name in names]
    with pytest.raises(ConfigurationError, match="names of their own"):
        run(dataclasses.replace(experiment(), parts=lambda settings: parts), "smoke", tmp_path, console=console)


def test_tensors_are_left_to_later_parts(experiment, tmp_path, console):
    import torch

    def first(bench):
        bench.tensors["x"] = torch.arange(3.0)
        return {}

    def second(bench):
        return {"sum": float(bench.tensors_of("first")["x"].sum())}

    parts = [Part("first", "", first), Part("second", "", second, ("first",))]
    made = dataclasses.replace(experiment(), parts=lambda settings: parts)
    assert run(made, "smoke", tmp_path, console=console).result("second") == {"sum": 3.0}
