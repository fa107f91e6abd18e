from bayesprop.experiments.cost.page import page, table_1_section
from bayesprop.experiments.record import Record


def timing(kind, seconds):
    return {
        "device": "cpu",
        "kind": kind,
        "width": 400,
        "starts": 1,
        "epoch_seconds": [seconds, seconds],
        "seconds": seconds,
        "epochs_an_hour": 3600.0 / seconds,
        "microseconds_a_step": 1e6 * seconds / 391,
        "engine": "step by step",
        "threads": 2,
    }


def made(**seconds):
    parts = {
        k: {"result": timing(k.replace("_", "-"), s), "device": "a CPU", "seconds": 1.0} for k, s in seconds.items()
    }
    settings = {"widths": [400], "batch_size": 128}
    return Record("cost", "none", settings, parts, ())


def test_ours_stand_beside_the_published_ones():
    section = page(made(sgd=2.0, mixture_2=4.8))[0]
    plot, table = section.blocks
    assert table.rows[1][:2] == ("a CPU, 2 threads", "Bayes by Backprop, scale mixture prior, 2 samples")
    assert table.rows[1][4:] == ("4.8 (4.8 to 4.8)", "2", "750", "12,276", "48 [S], 23 [R]")
    assert table.rows[0][-1] == "–"
    assert [text.get_text() for text in plot.figure.axes[0].texts] == ["1,800", "750", "75", "157", "32.1"]


def test_ratios_are_of_the_same_run():
    rows = page(made(sgd=2.0, dropout=4.0, mixture=5.0))[1].blocks[0].rows
    assert list(rows) == [("cpu", "Bayes by Backprop, scale mixture prior", "400", "1", "2.50", "1.25")]
    assert page(made(sgd=2.0, mixture=5.0))[1].blocks[0].rows[0][-1] == "–"


def test_what_table_1_cost():
    def part(seconds):
        result = {"member_steps": 1_000_000, "training_seconds": seconds - 1.0}
        return {"seconds": seconds, "device": "a GPU", "result": result}

    parts = {"choose-sgd": part(11.0), "sgd-400": part(21.0), "mixture-400": part(31.0), "mixture-full-400": part(61.0)}
    record = Record("table-1", "paper", {"epochs": 600, "seeds": 5}, parts, ("mixture-1200",))
    section = table_1_section(record)
    headline, table = section.blocks
    assert [number.value for number in headline.numbers] == ["1.1 min", "1.0 min", "4,000,000", "25 µs"]
    assert list(table.rows) == [("choices", "1", "11"), ("400 units", "3", "113")]
    assert "Not run: mixture-1200." in section.text
