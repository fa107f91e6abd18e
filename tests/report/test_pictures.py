import pytest
import torch

from bayesprop.errors import DataError
from bayesprop.report.pictures import as_pictures, find_shape, gallery


def noise(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def smooth(*shape):
    """Pictures of soft waves."""
    height, width = shape[-2:]
    waves = torch.sin(torch.arange(height)[:, None] / 3) + torch.cos(torch.arange(width) / 3)
    return waves + 0.1 * noise(*shape)


def test_flat_pictures_are_found_by_their_smoothness(blobs):
    assert find_shape(blobs[0]) == (8, 8)
    assert find_shape(smooth(20, 28, 28).reshape(20, 784)) == (28, 28)
    assert find_shape(smooth(20, 9, 12)) == (9, 12)


def test_the_digits_are_found():
    """The closest call of all pictures that people use: 8 x 8 pixels with hard strokes."""
    from sklearn.datasets import load_digits

    pixels = torch.from_numpy(load_digits().data)
    assert find_shape(pixels) == (8, 8)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    assert find_shape(pixels[:, order]) is None, "the same columns in another order are no pictures"


@pytest.mark.parametrize(
    "inputs",
    [
        noise(50, 64),  # a table that happens to have 8 x 8 columns
        noise(50, 8, 8),
        smooth(50, 7, 7).reshape(50, 49),  # too small to be told from a table
        smooth(50, 8, 9).reshape(50, 72),  # not square
        torch.ones(50, 64),
        torch.arange(3200).reshape(50, 64),  # whole numbers: tokens
        noise(50, 5, 16, 16),
        noise(50),
        (noise(50, 64), noise(50, 64)),
        {"pixels": noise(50, 64)},
    ],
)
def test_what_does_not_look_like_pictures(inputs):
    assert find_shape(inputs) is None


@pytest.mark.parametrize("shape", [(1, 5, 6), (3, 5, 6), (5, 6, 3), (5, 6, 1)])
def test_channels_make_a_picture(shape):
    inputs = noise(4, *shape)
    assert find_shape(inputs) == shape
    expected = inputs.movedim(1, -1) if shape[0] in (1, 3) else inputs
    expected = expected[..., 0] if expected.shape[-1] == 1 else expected
    assert torch.equal(as_pictures(inputs, shape), expected)


def test_a_shape_is_taken_as_it_is_given():
    flat = noise(4, 60)
    assert torch.equal(as_pictures(flat, (6, 10)), flat.reshape(4, 6, 10))
    assert torch.equal(as_pictures(flat, [3, 4, 5]), flat.reshape(4, 3, 4, 5).movedim(1, -1))
    assert torch.equal(as_pictures(flat, (4, 5, 3)), flat.reshape(4, 4, 5, 3))
    assert as_pictures(noise(4, 1, 8, 8), (8, 8)).shape == (4, 8, 8)


@pytest.mark.parametrize(
    ("inputs", "shape", "received"),
    [
        (noise(4, 64), (8, 9), "rows of (64,) and picture_shape=(8, 9)"),
        (noise(4, 64), (4, 4, 4), "rows of (64,) and picture_shape=(4, 4, 4)"),
        (noise(4, 64), (64,), "rows of (64,) and picture_shape=(64,)"),
        ((noise(4, 64),), (8, 8), "a tuple and picture_shape=(8, 8)"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(inputs, shape, received):
    with pytest.raises(DataError) as caught:
        as_pictures(inputs, shape)
    lines = str(caught.value).splitlines()
    assert lines[:2] == ["the inputs are no pictures of this shape", f"  received: {received}"]
    assert lines[-1] == "  write: picture_shape=(28, 28)"


def test_a_gallery_shows_its_rows_in_order():
    pictures = torch.stack([torch.zeros(2, 2), torch.ones(2, 2)])
    found = gallery("Some", pictures, [1, 0, 1], lambda row: (f"row {row}", "note"), limits=(0.0, 1.0))
    assert found.title == "Some"
    assert [picture.caption for picture in found.pictures] == ["row 1", "row 0", "row 1"]
    assert {picture.note for picture in found.pictures} == {"note"}
    addresses = [picture.address for picture in found.pictures]
    assert addresses[0] == addresses[2] != addresses[1]
