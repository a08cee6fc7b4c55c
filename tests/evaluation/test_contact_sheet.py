"""Contact sheets: right and wrong are told apart, and captions are there."""

from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from compatstore.errors import InvalidInput
from compatstore.evaluation import Neighbour, SheetRow, contact_sheet

GREEN, RED = (0x1A, 0x7F, 0x37), (0xCF, 0x22, 0x2E)


@pytest.fixture
def row():
    grey = np.full((20, 30), 200, np.uint8)
    colour = np.full((30, 20, 3), 0.5)
    found = [Neighbour(image=colour, correct=True), Neighbour(image=grey, correct=False, caption="a cat")]
    return SheetRow(query=grey, before=found[1:] * 2, after=found, caption="a dog")


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def shows(path, colour):
    return bool((pixels(path) == colour).all(axis=2).any())


def test_a_contact_sheet_frames_right_and_wrong_in_two_colours(tmp_path, row):
    path = contact_sheet([row, row], tmp_path / "sheet.png", title="Two queries")
    assert shows(path, GREEN)
    assert shows(path, RED)


def test_a_contact_sheet_without_wrong_neighbours_has_red_in_its_key_only(tmp_path, row):
    right = SheetRow(query=row.query, before=row.after[:1], after=row.after[:1])
    path = contact_sheet([right], tmp_path / "sheet.png")
    height = pixels(path).shape[0]
    reds = np.argwhere((pixels(path) == RED).all(axis=2))
    assert (reds[:, 0] > 0.75 * height).all()


def test_a_contact_sheet_grows_with_its_rows_and_says_its_captions(tmp_path, row):
    one, three = (contact_sheet([row] * n, tmp_path / f"{n}.svg") for n in (1, 3))
    heights = [float(ElementTree.parse(path).getroot().get("height").removesuffix("pt")) for path in (one, three)]
    assert heights[1] - heights[0] == pytest.approx(2 * 1.2 * 0.8 * 72)
    text = " ".join(ElementTree.parse(one).getroot().itertext())
    for words in ("Query", "Before the upgrade", "After the upgrade", "a dog", "a cat", "\N{CHECK MARK}"):
        assert words in text


def test_what_cannot_be_drawn_is_refused(tmp_path, row):
    with pytest.raises(InvalidInput, match="rows with neighbours"):
        contact_sheet([], tmp_path / "a.png")
    with pytest.raises(InvalidInput, match=r"\(4,\)"):
        contact_sheet([SheetRow(query=np.ones(4), before=row.before, after=row.after)], tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
