"""The attention lesson without a browser: its address, its parts, its controls, what it says, Run."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import records
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import DTYPES, AttentionShape
from pages import _cards
from pages.attention import address
from pages.attention.address import ADDRESS, DEFAULT, MOST, MOST_ELEMENTS, MOST_SCALE
from pages.attention.controls import CHIPS
from pages.parts import tiles as tile_sizes
from tests.helpers.hostile import anything, bounds_hold, changed_with_a_note, valid
from tests.helpers.opened import finish, links, open_page, stages, texts
from tests.helpers.rows_of import a_full_row
from visuals.attention.inputs import KINDS
from visuals.attention.scene import why_not

open_at = partial(open_page, "attention/page.py")
RUNGS = ADDRESS.rungs
SHAPES = st.fixed_dictionaries(
    {name: st.integers(1, most) for name, most in MOST.items()}
    | {"causal": st.integers(0, 1), "dtype": st.sampled_from(DTYPES)}
    | {"scale": st.floats(-MOST_SCALE, MOST_SCALE).map(lambda value: float(f"{value:.3g}"))}
)
ANYTHING = anything(RUNGS)


@st.composite
def asked(draw):
    rung = RUNGS[draw(st.sampled_from(list(RUNGS)))]
    tiles = {name: draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    read, _ = ADDRESS.read(draw(SHAPES))
    return type(read)(rung, tiles, read.shape)


# -- the address -----------------------------------------------------------------------------------
@given(asked())
def test_what_is_written_reads_back(one):
    assert ADDRESS.read(ADDRESS.write(one)) == (one, [])


@given(SHAPES)
def test_a_mended_shape_keeps_the_rule_and_changes_nothing_without_a_note(values):
    read, notes = ADDRESS.read(values)
    got = read.shape
    assert got.elements["Q"] <= MOST_ELEMENTS
    changed_with_a_note(got, DEFAULT, values, notes)


@given(
    st.dictionaries(
        st.sampled_from([*MOST, "causal", "scale", "dtype", "rung", "Br", "Bc", "BLOCK", "TM"]), ANYTHING
    )
)
def test_hostile_values_give_a_valid_state_and_say_why(raw):
    valid(*ADDRESS.read(raw), AttentionShape, RUNGS)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"N": "0"}, "N must lie in 1 .. 65536 on this page, got “0”: N=16 is used"),
        ({"d": "8.5"}, "d must be a whole number, got “8.5”: d=4 is used"),
        ({"causal": "2"}, "causal must be one of 0, 1; got “2”: causal=0 is used"),
        ({"scale": "nan"}, "scale must be a number, got “nan”: scale=0.0 is used"),
        ({"dtype": "int8"}, "dtype must be one of fp32, fp16, bf16; got “int8”: dtype=fp32 is used"),
        ({"Br": "5"}, "Br must be one of 4, 8, 16, 32; got “5”: Br=4 is used"),
        ({"rung": "<b>"}, f"rung must be one of {', '.join(RUNGS)}; got “<b>”: rung=flash is used"),
        ({"H": "128", "N": "65536", "d": "64"}, "Q may have 268,435,456 elements on this page, B*H*N*d is 536,870,912: H=1 is used"),
    ],
)  # fmt: skip
def test_notes_name_the_rule_the_limit_and_what_is_used(raw, says):
    assert ADDRESS.read(raw)[1] == [says]


@given(SHAPES)
def test_no_field_can_be_turned_to_a_shape_that_is_mended(values):
    shape = ADDRESS.read(values)[0].shape
    bounds_hold(shape, address.bounds(shape), ADDRESS.read)


@settings(deadline=None, max_examples=20)
@given(asked(), st.sampled_from(list(ATTENTION_PRESETS)))
def test_a_link_to_a_preset_leads_to_something_that_runs(one, key):
    there, notes = ADDRESS.read(ADDRESS.at_shape(one, ATTENTION_PRESETS[key].shape))
    assert there.shape == ATTENTION_PRESETS[key].shape and notes == []
    assert there.broken == [] and ADDRESS.able(there.shape)


def test_at_first_sight_the_tiles_are_seen_and_a_large_shape_has_the_usual_ones():
    first, _ = ADDRESS.read({})
    assert first.rung.name == "attention/flash" and first.tiles == {"Br": 4, "Bc": 8}
    assert 2 * first.tiles["Bc"] == first.shape.N  # something is mended
    large, _ = ADDRESS.read(ADDRESS.at_shape(first, ATTENTION_PRESETS["attention-2048"].shape))
    assert large.tiles == large.rung.default_tiles
    assert ADDRESS.read(ADDRESS.at_shape(large, first.shape))[0] == first


# -- the page --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "key", ["attention-toy", "attention-ragged", "attention-2048-fp16", "attention-8192"]
)
def test_a_preset_shows_every_part(key):
    shape = ATTENTION_PRESETS[key].shape
    first, _ = ADDRESS.read({})
    at = open_at(**ADDRESS.at_shape(first, shape))
    shown = texts(at)
    assert "kt-note" not in shown and f"S <b>{shape.N:,}×{shape.N:,}</b>" in shown
    for part in (
        "Time", "Memory", "Roofline", "Why", "Memory against N", "Traffic past each level of memory", "Kernel",
    ):  # fmt: skip
        assert f'<h2 class="kt-card">{part}</h2>' in shown, part
    assert at.code and at.button(key="run").label == "Run here"
    one, _ = ADDRESS.read(dict(at.query_params))
    (scene,) = stages(at)
    assert scene.startswith(f"{one.rung.name} {shape}")


def test_every_chip_is_a_preset_and_leads_to_it():
    found = links(open_at())
    for key, label in CHIPS.items():
        there, notes = ADDRESS.read(found.get(label) or found[f"**{label}**"])
        assert there.shape == ATTENTION_PRESETS[key].shape and not notes and not there.broken


@pytest.mark.parametrize("view", ["watch", "run", "why", "kernel", "memory", "traffic", "processor"])
def test_each_view_is_its_part_alone(view):
    at = open_at(view=view)
    shown = texts(at)
    assert bool([b for b in at.button if b.key == "run"]) == (view in ("run", "why"))
    assert ("Memory against N" in shown) == (view == "memory")
    assert ("Traffic past" in shown) == (view == "traffic")
    assert bool([b for b in at.button if b.key == "measure_attention_cpu"]) == (view == "processor")
    assert bool(at.code) == (view == "kernel") and len(stages(at)) == (view == "watch")
    assert not at.number_input and "<h1" not in shown


def test_hostile_parameters_are_named_and_harmless():
    at = open_at(N="abc", d="1e400", rung="<script>alert(1)</script>", Br="-3", H="5", values="<i>")
    shown = texts(at)
    assert "N must be a whole number" in shown and "&lt;script" in shown and "<script" not in shown
    assert at.number_input(key="H").value == 5 and at.number_input(key="N").value == DEFAULT.N


@pytest.mark.parametrize("name", [name for name, rung in RUNGS.items() if not rung.library])
def test_every_rung_of_ours_is_watched_at_its_tiles_or_says_why_not(name):
    shape = DEFAULT.with_(dtype="fp16") if name == "flash-mma" else DEFAULT
    tiles = tile_sizes.fitting(RUNGS[name], shape)
    shown = open_at(view="watch", dtype=shape.dtype, rung=name, **tiles)
    if reason := why_not(shape, f"attention/{name}", tiles):
        assert not stages(shown) and reason in texts(shown)
    else:
        (scene,) = stages(shown)
        assert scene.startswith(f"attention/{name} ") and all(f"{n}={v}" in scene for n, v in tiles.items())


def test_a_rung_that_cannot_take_the_type_says_so_and_leads_to_those_that_can():
    at = open_at(dtype="bf16", rung="flash")
    assert "flash attention cannot run so: dtype must be fp32, got bf16" in texts(at) and not stages(at)
    there, _ = ADDRESS.read(links(at)[RUNGS["flash-mma"].title])
    assert there.shape == DEFAULT.with_(dtype="bf16") and there.broken == []


def test_a_head_beyond_the_tiles_is_named_and_the_others_go_on():
    at = open_at(d=200)
    shown = texts(at)
    assert "flash attention cannot run so: d &lt;= 128, got 200" in shown and "kt-note" not in shown
    assert at.button(key="run") and "naive" in shown


def test_a_library_has_no_stage_and_says_why():
    at = open_at(rung="cublas")
    assert not stages(at) and "its source is not open" in texts(at) and at.button(key="run")


def test_what_the_stage_computes_with_is_a_choice():
    sent = {kind: open_at({address.VALUES: kind}, view="watch") for kind in KINDS}
    messages = {kind: at.get("bidi_component")[0].proto.bytes for kind, at in sent.items()}
    assert len(set(messages.values())) == len(KINDS)


def test_an_n_whose_matrix_no_longer_fits_is_told():
    shown = texts(open_at(engine="cpu", B=4, H=16, N=65_536, d=64, Br=32, Bc=32))
    assert "S and P take 2.2 TB" in shown and "naive no longer fits" in shown


def test_run_times_every_rung_with_the_pages_tiles_for_the_one_that_is_watched():
    watched, turned = RUNGS["flash"], {"Br": 8, "Bc": 16}
    at = open_at(engine="cpu", N=40, causal=1, **turned)
    finish(at, "run", "job")
    rows = at.session_state["ran"].rows
    shape = DEFAULT.with_(N=40, causal=1)
    assert list(rows) == [r.name for r in ADDRESS.able(shape) if "cpu" in r.engines] and len(rows) == 6
    for name, row in rows.items():
        usual = RUNGS[name.partition("/")[2]].default_tiles
        assert row["tiles"] == (turned if name == watched.name else usual) and row["error"] < 1e-5
    shown = texts(at)
    assert "kt-badge-measured" in shown and "kt-stale" not in shown and "Flash attention" in shown
    at.selectbox(key="Br").select(4).run()
    assert "stale: measured at B1 H1 N40 d4 causal" in texts(at) and not at.exception


def test_recorded_peaks_stand_beside_the_prediction(monkeypatch):
    shape, found = ATTENTION_PRESETS["attention-8192"].shape, []
    for name in ("naive", "flash"):
        rung = RUNGS[name]
        peak = rung.build(shape, rung.default_tiles).nbytes()
        found.append(a_full_row(
            rung=rung.name, shape=shape.params(), tiles=rung.default_tiles, engine="cuda", device="a GPU", peak_bytes=peak, flops=shape.flops,
        ))  # fmt: skip
    monkeypatch.setattr(records, "recordings", lambda: found)
    shown = texts(open_at(view="memory", **ADDRESS.at_shape(ADDRESS.read({})[0], shape)))
    assert (
        "recorded a GPU, peak: ◆" in shown
        and "All 2 measured peaks that have a prediction equal it to the byte" in shown
    )
    other = texts(open_at(view="memory", H=3, N=8192, d=64))
    assert "recorded a GPU" not in other and "peaks" not in other


def test_the_cards_of_the_first_page_show_the_lessons_own_scene():
    cards = [card for card in _cards.CARDS if card.page == "attention/page.py"]
    assert len(cards) == 2
    for card in cards:
        assert 0 < card.step < card.shown().steps
        assert stages(open_at(view="watch", **card.params)) == [card.shown().key]
