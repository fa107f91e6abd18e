"""Names and shapes to columns and back; the patterns by which users mean parameters."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from bayesprop.errors import ConfigurationError
from bayesprop.layout import Block, Kind, Layout, match

ROWS: list[tuple[str, tuple[int, ...], Kind, torch.dtype]] = [
    ("0.weight", (4, 3), "random", torch.float32),
    ("0.bias", (4,), "random", torch.bfloat16),
    ("norm.weight", (), "random", torch.float32),
    ("empty", (0, 3), "random", torch.float32),
    ("0.weight scale", (2,), "latent", torch.float32),
    ("noise", (), "latent", torch.float64),
    ("head.bias", (2,), "point", torch.float32),
]


def lay_out(rows=ROWS) -> Layout:
    blocks: list[Block] = []
    for name, shape, kind, dtype in rows:
        start = blocks[-1].stop if blocks else 0
        aliases = ("tied.weight", "again.weight") if name == "0.weight" else ()
        blocks.append(Block(name, shape, start, kind, dtype, name.rpartition(".")[0], aliases))
    return Layout(tuple(blocks))


@pytest.fixture
def theta() -> Tensor:
    return torch.randn(2, 5, 22, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_columns_follow_one_another():
    layout = lay_out()
    assert [(b.start, b.stop, b.size) for b in layout.blocks] == [
        (0, 12, 12),
        (12, 16, 4),
        (16, 17, 1),
        (17, 17, 0),
        (17, 19, 2),
        (19, 20, 1),
        (20, 22, 2),
    ]
    assert layout.blocks[1].columns == slice(12, 16)
    assert (layout.random, layout.latent, layout.size) == (17, 20, 22)


def test_a_layout_of_nothing():
    layout = Layout(())
    assert (layout.random, layout.latent, layout.size) == (0, 0, 0)
    assert layout.to_json() == []
    assert layout.differences([]) == []


def test_blocks_are_found_by_kind_name_and_alias():
    layout = lay_out()
    assert [b.name for b in layout.of_kind("latent")] == ["0.weight scale", "noise"]
    assert [b.name for b in layout.of_kind("random", "point")] == [
        "0.weight",
        "0.bias",
        "norm.weight",
        "empty",
        "head.bias",
    ]
    assert list(layout.by_name) == [b.name for b in layout.blocks]
    for name in ("0.weight", "tied.weight", "again.weight"):
        assert layout.block(name) is layout.blocks[0]


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(ConfigurationError, match=r"no parameter is called 'head\.bais'") as caught:
        lay_out().block("head.bais")
    assert "Did you mean 'head.bias'?" in str(caught.value)
    assert "expected: one of 0.weight, 0.bias, norm.weight, empty, 0.weight scale, noise, head.bias" in str(
        caught.value
    )


def test_unflatten_gives_each_parameter_its_shape_and_type(theta):
    named = lay_out().unflatten(theta)
    assert list(named) == [name for name, *_ in ROWS]
    for (name, shape, _, dtype), block in zip(ROWS, lay_out().blocks, strict=True):
        assert named[name].shape == (2, 5, *shape)
        assert named[name].dtype == dtype
        assert torch.equal(
            named[name].flatten(2) if shape else named[name][..., None], theta[..., block.columns].to(dtype)
        )
    for row in (theta[0, 0], theta[0]):
        assert torch.equal(lay_out().unflatten(row)["0.bias"], row[..., 12:16].to(torch.bfloat16))


def test_unflatten_gives_views_where_the_type_is_the_same(theta):
    single = theta.float()
    named = lay_out().unflatten(single)
    assert named["0.weight"].data_ptr() == single.data_ptr()
    assert named["head.bias"]._base is not None
    named["head.bias"].zero_()
    assert torch.count_nonzero(single[..., 20:]).item() == 0


def test_unflatten_of_some_kinds(theta):
    layout = lay_out()
    assert list(layout.unflatten(theta, ("latent",))) == ["0.weight scale", "noise"]
    assert list(layout.unflatten(theta, ("random", "point"))) == [b.name for b in layout.of_kind("random", "point")]
    assert torch.equal(layout.unflatten(theta, ("point",))["head.bias"], theta[..., 20:].float())


def test_unflatten_is_differentiable_and_runs_under_vmap(theta):
    layout = lay_out()

    def total(row: Tensor) -> Tensor:
        return sum(
            ((i + 1.0) * t.double().sum() for i, t in enumerate(layout.unflatten(row).values())), torch.zeros(())
        )

    weights = torch.cat([torch.full((b.size,), i + 1.0) for i, b in enumerate(layout.blocks)]).double()
    gradient = torch.func.vmap(torch.func.grad(total))(theta[0])
    torch.testing.assert_close(gradient, weights.expand(5, 22), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("width", [17, 21, 23])
def test_a_row_of_another_width_is_refused(width):
    with pytest.raises(RuntimeError, match="split_with_sizes"):
        lay_out().unflatten(torch.zeros(width))


def test_flatten_is_the_inverse(theta):
    layout = lay_out([(name, shape, kind, torch.float64) for name, shape, kind, _ in ROWS])
    assert torch.equal(layout.flatten(layout.unflatten(theta)), theta)
    reordered = dict(reversed(layout.unflatten(theta[0, 0]).items()))
    assert torch.equal(layout.flatten(reordered), theta[0, 0])
    single = layout.flatten(layout.unflatten(theta), dtype=torch.float32)
    assert single.dtype == torch.float32
    assert torch.equal(single, theta.float())


def test_a_layout_that_was_stored_is_no_different():
    layout = lay_out()
    stored = json.loads(json.dumps(layout.to_json()))
    assert stored[1] == {"name": "0.bias", "shape": [4], "kind": "random", "dtype": "bfloat16"}
    assert len(stored) == 7
    assert layout.differences(stored) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda rows: rows[:-1], ["head.bias is in the network, not in the file"]),
        (
            lambda rows: [*rows, {"name": "new", "shape": [1], "kind": "random", "dtype": "float32"}],
            ["new is in the file, not in the network"],
        ),
        (
            lambda rows: [rows[0] | {"shape": [3, 4]}, *rows[1:]],
            ["0.weight: random [4, 3] in the network, random [3, 4] in the file"],
        ),
        (
            lambda rows: [*rows[:-1], rows[-1] | {"kind": "random"}],
            ["head.bias: point [2] in the network, random [2] in the file"],
        ),
        (lambda rows: [rows[1], rows[0], *rows[2:]], ["the same parameters in another order"]),
        (
            lambda rows: [rows[0] | {"name": "1.weight"}, *rows[1:]],
            ["0.weight is in the network, not in the file", "1.weight is in the file, not in the network"],
        ),
    ],
    ids=["missing", "surplus", "shape", "kind", "order", "name"],
)
def test_differences_are_said_in_words(change, expected):
    assert lay_out().differences(change(lay_out().to_json())) == expected


# -- patterns ----------------------------------------------------------------------------------------------------------

NAMES = ["body.0.weight", "body.0.bias", "head.weight", "head.bias", "Head.scale"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("*", dict.fromkeys(NAMES, "*")),
        ("head.*", {"head.weight": "head.*", "head.bias": "head.*"}),
        ("head.weight", {"head.weight": "head.weight"}),
        ("*.bias", {"body.0.bias": "*.bias", "head.bias": "*.bias"}),
        ("[!b]*.?eight", {"head.weight": "[!b]*.?eight"}),
        (
            ["head.bias", "*.bias", "b*"],
            {"head.bias": "head.bias", "body.0.bias": "*.bias", "body.0.weight": "b*"},
        ),
        (("*", "head.bias"), dict.fromkeys(NAMES, "*")),
        ([], {}),
        ((), {}),
        (iter(["Head.*"]), {"Head.scale": "Head.*"}),
    ],
)
def test_the_first_pattern_that_matches_wins(patterns, expected):
    assert match(patterns, NAMES, argument="prior") == expected


def test_a_name_with_brackets_means_itself():
    assert match("list[0]", ["list[0]", "list0"], argument="prior") == {"list[0]": "list[0]", "list0": "list[0]"}


def test_a_pattern_that_matches_nothing_is_refused():
    with pytest.raises(ConfigurationError) as caught:
        match(["head.*", "head.wieght"], NAMES, argument="fixed")
    assert str(caught.value).splitlines() == [
        "fixed: the pattern 'head.wieght' matches no parameter. Did you mean 'head.weight'?",
        "  expected: a name or a wildcard over body.0.weight, body.0.bias, head.weight, head.bias, Head.scale",
        '  write: fixed="body.*"',
    ]


def test_the_refusal_of_a_pattern_is_short_for_large_networks():
    names = [f"layer.{i}" for i in range(100)]
    with pytest.raises(ConfigurationError, match=r"over layer\.0, layer\.1, .*, layer\.19, \.\.\.\n") as caught:
        match("zzz", names, argument="random")
    assert "Did you mean" not in str(caught.value)
    assert "layer.20" not in str(caught.value)


def test_the_line_to_write_works():
    """A network that is a single layer has parameters without a module before them."""
    for names, line in ((NAMES, 'random="body.*"'), (["weight", "bias"], 'random="weight"')):
        with pytest.raises(ConfigurationError, match="the pattern 'zzz' matches no parameter") as caught:
            match("zzz", names, argument="random")
        assert str(caught.value).splitlines()[-1] == f"  write: {line}"
        assert match(line.split('"')[1], names, argument="random")


def test_there_may_be_no_parameters_at_all():
    with pytest.raises(ConfigurationError, match="a wildcard over no parameters at all") as caught:
        match("*", [], argument="random")
    assert "write" not in str(caught.value)
