from __future__ import annotations

import pytest

from codedfl.report._html import Heading, Html, folded, joined, listed, markup, section, table

BAD = '"><script>alert(1)</script>'


@pytest.mark.parametrize(
    "made",
    [
        markup("<p>{}</p>", BAD),
        markup("<p>{name}</p>", name=BAD),
        joined([BAD, BAD], BAD),
        listed([BAD], BAD),
        table([Heading(BAD, hint=BAD), Heading(BAD)], [[BAD, BAD]], BAD, BAD),
        section(BAD, BAD, markup("{}", BAD)),
        folded(BAD, BAD, markup("{}", BAD)),
    ],
)
def test_text_is_escaped_wherever_it_goes(made: Html) -> None:
    assert "<script" not in made
    assert '"&gt;' not in made, "a quote would end an attribute"


def test_markup_is_left_as_it_is() -> None:
    assert markup("<p>{}</p>", markup("<b>{}</b>", "&")) == "<p><b>&amp;</b></p>"


def test_nothing_makes_no_section_and_no_list() -> None:
    assert section("a", "A", Html(), Html()) == listed([]) == ""


def test_cells_of_a_table_have_labels_for_narrow_screens() -> None:
    made = table([Heading("device", number=False), Heading("rows")], [["north", 3]], "Devices")
    assert '<th scope="row">north</th><td class="number" data-label="rows">3</td>' in made
    assert "<caption>Devices</caption>" in made
