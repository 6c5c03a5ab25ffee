"""Pieces of HTML that every card uses: folded parts, paragraphs, the conclusion."""

from pages.parts import text


def test_details_are_folded_and_absent_without_pieces():
    html = text.details("<p>one</p>", "", "<p>two</p>", label="a < b")
    assert html.startswith('<details class="kt-more kt-details"><summary>a &lt; b</summary>')
    assert "<p>one</p><p>two</p>" in html and " open" not in html
    assert "<summary>Details</summary>" in text.details("x")
    assert text.details() == text.details("", label="empty") == ""


def test_foreign_text_is_escaped():
    for html in (text.paragraph("<b>"), text.conclusion("<b>"), text.stale_mark("<b>")):
        assert "<b>" not in html and "&lt;b&gt;" in html
    assert text.paragraph("") == text.conclusion("") == ""
    assert text.stale_mark() == '<span class="kt-stale">stale</span>'
