from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import EXTRA_SINCE, MODES, ConvShape
from pages.conv import address as conv_address
from pages.conv.address import DEFAULT, MAX, MIN, NAMES, ConvQuery
from pages.parts import query
from pages.streamlit_patches import request
from tests.helpers.offenders import every
from tests.helpers.page_runner import open_part

SHAPES = st.fixed_dictionaries(
    {name: st.integers(MIN[name], MAX[name]) for name in MAX if name != "seed"} | {"mode": st.sampled_from(MODES)}
)
ANYTHING = st.one_of(
    st.text("0123456789.-+eE_<>'&\n ١x\0", max_size=30),
    st.integers().map(str),
    st.floats().map(str),
    st.floats(),
    st.integers(),
    st.none(),
    st.sampled_from(["abc", "1e9", "nan", "inf", "-inf", "1e400", "<script>", "8.5", "08", " 3 ", "9" * 4000, "١"]),
)


@given(SHAPES, st.sampled_from(conv_address.CHOICES["picture"]), st.integers(0, 9999))
def test_written_settings_are_read_back(values, picture, seed):
    settings, _ = conv_address.read(values)
    settings = ConvQuery(settings.shape, picture, "custom", seed, "1 2 3\n4 5 6")
    assert conv_address.read(conv_address.write(settings)) == (settings, [])


@given(SHAPES)
def test_invalid_shape_is_fixed_by_resetting_single_values(values):
    settings, notes = conv_address.read(values)
    values_read, default = {**EXTRA_SINCE, **settings.shape.params()}, DEFAULT.params()
    assert all(values_read[name] in (values[name], default[name]) for name in values)
    changed = {name for name in values if values_read[name] != values[name]}
    assert bool(changed) == bool(notes)
    for name in changed:  # none was reset without need: the shape rejects the old value
        with pytest.raises(ValueError, match=r"filter must fit|padding after the input must not be negative"):
            ConvShape(**(values_read | {name: values[name]}))


@given(st.dictionaries(st.sampled_from(NAMES), ANYTHING))
def test_hostile_values_give_a_valid_shape_and_notes(raw):
    settings, notes = conv_address.read(raw)
    assert isinstance(settings.shape, ConvShape)
    values_read = settings.params()
    for name in conv_address.CHOICES:
        assert values_read[name] in conv_address.CHOICES[name]
    for name in MAX:
        assert MIN[name] <= values_read[name] <= MAX[name]
    assert all(len(note) < 300 for note in notes)


@every(
    ("raw", "says"),
    [
        (
            {"extra_w": "-4"},
            "The padding after the input must not be negative, extra_w >= -pad_w, but -4 < 0: extra_w=0 is used",
        ),
        ({"N": "abc"}, "N must be a whole number, got “abc”: N=1 is used"),
        ({"H": "1e9"}, "H must be 1 to 512 on this page, got “1e9”: H=8 is used"),
        ({"H": "inf"}, "H must be 1 to 512 on this page, got “inf”: H=8 is used"),
        ({"W": "nan"}, "W must be a whole number, got “nan”: W=8 is used"),
        ({"C": "2.5"}, "C must be a whole number, got “2.5”: C=1 is used"),
        ({"pad_h": "-1"}, "pad_h must be 0 to 8 on this page, got “-1”: pad_h=0 is used"),
        ({"R": "9"}, "The filter must fit the padded input, dilation_h*(R-1)+1 <= H+2*pad_h, but 9 > 8: R=3 is used"),
        (
            {"mode": "<b>"},
            "mode must be one of cross-correlation, convolution; got “<b>”: mode=cross-correlation is used",
        ),
        ({"seed": "-1"}, "seed must be 0 to 9,999 on this page, got “-1”: seed=0 is used"),
        ({"taps": "9" * 3000}, "taps may have at most 2000 characters, got 3000: it is left out"),
    ],
)
def test_notes_name_rule_limit_and_value_used(raw, says):
    settings, notes = conv_address.read(raw)
    assert notes == [says]
    assert settings == DEFAULT


def test_one_bad_value_changes_no_other():
    settings, _ = conv_address.read({"H": "32", "W": "32", "R": "99", "S": "5", "picture": "gradient", "u": "x"})
    assert settings == ConvQuery(ConvShape(1, 1, 32, 32, 2, 3, 5), "gradient")


@every("key", CONV_PRESETS)
def test_every_preset_has_a_url(key):
    shape = CONV_PRESETS[key].shape
    assert conv_address.read(conv_address.at_shape(DEFAULT, shape)) == (ConvQuery(shape), [])


def poll_page():
    import streamlit as st

    from pages.parts import query
    from pages.parts.address import Fields, Number

    if "poll" in st.session_state:
        st.session_state["behind"] = query.url_is_stale()
    else:
        st.session_state[query.NOW] = []
        query.current_values(Fields("a lesson", {"N": Number(1, 1, 9)}), visible=False)


@pytest.fixture
def poll(monkeypatch):
    """Returns a function that polls at a URL in a run of these fragments. The page was at ?N=2."""
    monkeypatch.setattr(query, "in_browser", lambda: True)

    def poll(address, fragments):
        at = open_part(poll_page, N="2")
        monkeypatch.setattr(request, "get_script_run_ctx", lambda: SimpleNamespace(fragment_ids_this_run=fragments))
        at.session_state["poll"] = True
        at.query_params.clear()
        for name, value in address.items():
            at.query_params[name] = value
        at.run()
        return at.session_state["behind"]

    return poll


def chapter_poll_page():
    import streamlit as st

    from pages.parts import query

    if "poll" in st.session_state:
        st.session_state["behind"] = query.url_is_stale()
    else:
        query.keep_mode("a lesson")


@pytest.mark.parametrize(
    ("page", "now", "stale"),
    [
        ({"chapter": "3"}, {"chapter": "3", "step": "2"}, False),
        ({"chapter": "3"}, {"chapter": "2"}, True),
        ({"chapter": "2"}, {}, True),
        ({}, {"chapter": "1"}, False),
    ],
)
def test_poll_of_another_chapter_than_the_page_is_stale(monkeypatch, page, now, stale):
    monkeypatch.setattr(query, "in_browser", lambda: True)
    at = open_part(chapter_poll_page, view="story", **page)
    monkeypatch.setattr(request, "get_script_run_ctx", lambda: SimpleNamespace(fragment_ids_this_run=["one"]))
    at.session_state["poll"] = True
    at.query_params.clear()
    for name, value in now.items():
        at.query_params[name] = value
    at.run()
    assert at.session_state["behind"] is stale


@pytest.mark.parametrize(
    ("address", "stale"),
    [
        ({"N": "2"}, False),
        ({"N": "2", "step": "7", "other": "x"}, False),
        ({}, True),
        ({"N": "3"}, True),
        ({"N": "nonsense"}, True),
    ],
)
def test_poll_with_another_url_than_the_page_is_stale(poll, address, stale):
    assert poll(address, ["one"]) is stale


@pytest.mark.parametrize(("fragments", "stale"), [(["one"], False), (None, False), (["one", "another"], True)])
def test_poll_waits_if_another_fragment_is_to_run(poll, fragments, stale):
    assert poll({"N": "2"}, fragments) is stale
