"""Tests of the attention lesson without a browser: URL, parts, controls, texts, Run."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import traffic
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import DTYPES, VARIANTS, AttentionShape
from pages import _teasers
from pages.attention import address
from pages.attention.address import ADDRESS, DEFAULT, MAX, MAX_ELEMENTS, MAX_SCALE
from pages.attention.controls import CHIPS
from pages.parts import tiles as tile_sizes
from tests.helpers.hostile import anything, assert_bounds, assert_changed_with_note, assert_valid
from tests.helpers.offenders import every
from tests.helpers.page_runner import components, finish, heads, links, open_page, stages, strip, texts
from tests.helpers.recordings import recordings
from tests.helpers.rows_of import a_full_row
from visuals.attention.inputs import KINDS
from visuals.attention.ring import RINGS
from visuals.attention.scene import why_not

open_at = partial(open_page, "attention/page.py")
RUNGS = ADDRESS.rungs
SHAPES = st.fixed_dictionaries(
    {name: st.integers(1, maximum) for name, maximum in MAX.items()}
    | {"causal": st.integers(0, 1), "dtype": st.sampled_from(DTYPES)}
    | {"scale": st.floats(-MAX_SCALE, MAX_SCALE).map(lambda value: float(f"{value:.3g}"))}
)
ANYTHING = anything(RUNGS)


@st.composite
def queries(draw):
    rung = RUNGS[draw(st.sampled_from(list(RUNGS)))]
    tiles = {name: draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    parsed, _ = ADDRESS.read(draw(SHAPES))
    return type(parsed)(rung, tiles, parsed.shape)


# -- the URL ---------------------------------------------------------------------------------------
@given(queries())
def test_written_parameters_read_back_equal(query):
    assert ADDRESS.read(ADDRESS.write(query)) == (query, [])


@given(SHAPES)
def test_corrected_shape_keeps_the_rule_and_notes_each_change(values):
    parsed, notes = ADDRESS.read(values)
    got = parsed.shape
    assert got.elements["Q"] <= MAX_ELEMENTS
    assert_changed_with_note(got, DEFAULT, values, notes)


@given(
    st.dictionaries(st.sampled_from([*MAX, "causal", "scale", "dtype", "rung", "Br", "Bc", "BLOCK", "TM"]), ANYTHING)
)
def test_invalid_values_give_a_valid_state_and_notes(raw):
    assert_valid(*ADDRESS.read(raw), AttentionShape, RUNGS)


@every(
    ("raw", "says"),
    [
        ({"N": "0"}, "N must be 1 to 65,536 on this page, got “0”: N=16 is used"),
        ({"d": "8.5"}, "d must be a whole number, got “8.5”: d=4 is used"),
        ({"causal": "2"}, "causal must be one of 0, 1; got “2”: causal=0 is used"),
        ({"scale": "nan"}, "scale must be a number, got “nan”: scale=0.0 is used"),
        ({"dtype": "int8"}, "dtype must be one of fp32, fp16, bf16; got “int8”: dtype=fp32 is used"),
        ({"Br": "5"}, "Br must be one of 4, 8, 16, 32; got “5”: Br=4 is used"),
        ({"rung": "<b>"}, f"rung must be one of {', '.join(RUNGS)}; got “<b>”: rung=flash is used"),
        (
            {"H": "128", "N": "65536", "d": "64"},
            "Q may have at most 268,435,456 elements on this page, B*H*N*d is 536,870,912: H=1 is used",
        ),
        (
            {"B": "64", "H": "128", "N": "1", "M": "65536"},
            "K and the mask may have at most 268,435,456 elements on this page, one has 2,147,483,648: M=0 is used",
        ),
    ],
)
def test_notes_name_rule_limit_and_value_used(raw, says):
    assert ADDRESS.read(raw)[1] == [says]


@given(SHAPES)
def test_field_bounds_allow_only_valid_shapes(values):
    shape = ADDRESS.read(values)[0].shape
    assert_bounds(shape, address.bounds(shape), ADDRESS.read)


@settings(max_examples=20)
@given(queries(), st.sampled_from(list(ATTENTION_PRESETS)))
def test_preset_link_leads_to_a_runnable_query(query, key):
    target, notes = ADDRESS.read(ADDRESS.at_shape(query, ATTENTION_PRESETS[key].shape))
    assert target.shape == ATTENTION_PRESETS[key].shape and notes == []
    assert target.broken == [] and ADDRESS.supported_rungs(target.shape)


def test_default_shape_has_visible_tiles_and_large_shape_default_tiles():
    first, _ = ADDRESS.read({})
    assert first.rung.name == "attention/flash" and first.tiles == {"Br": 4, "Bc": 8}
    assert 2 * first.tiles["Bc"] == first.shape.N  # two tiles of keys: partial results are rescaled
    large, _ = ADDRESS.read(ADDRESS.at_shape(first, ATTENTION_PRESETS["attention-2048"].shape))
    assert large.tiles == large.rung.default_tiles
    assert ADDRESS.read(ADDRESS.at_shape(large, first.shape))[0] == first


# -- the page --------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["attention-toy", "attention-ragged", "attention-2048-fp16", "attention-8192"])
def test_a_preset_shows_every_part(key):
    shape = ATTENTION_PRESETS[key].shape
    first, _ = ADDRESS.read({})
    at = open_at(**ADDRESS.at_shape(first, shape))
    html = texts(at)
    assert "kt-note" not in html and f"S <b>{shape.N:,}×{shape.N:,}</b>" in html
    for part in (
        "Time",
        "Memory",
        "Roofline",
        "Why",
        "Memory against N",
        "Bytes moved at each level of memory",
        "Kernel",
    ):
        assert f'<h2 class="kt-card">{part}' in html, part
    assert at.code and strip(at)["run"]["label"] == "Run here"
    query, _ = ADDRESS.read(dict(at.query_params))
    (scene,) = stages(at)
    assert scene.startswith(f"{query.rung.name} ") and str(shape) in scene


def test_every_chip_links_to_its_preset():
    found = links(open_at())
    for key, label in CHIPS.items():
        target, notes = ADDRESS.read(found.get(label) or found[f"**{label}**"])
        assert target.shape == ATTENTION_PRESETS[key].shape and not notes and not target.broken


LONG = ATTENTION_PRESETS["attention-2048"].shape


@pytest.mark.parametrize(
    ("tiles", "lit"), [({}, False), ({"Br": "32", "Bc": "32"}, True), ({"Br": "16", "Bc": "16"}, True)]
)
def test_a_chip_is_lit_if_its_link_leads_to_the_page(tiles, lit):
    """A URL without tiles has those of N=16; the chip leads to those of the recordings."""
    at = open_at(**{name: str(value) for name, value in LONG.params().items() if name in MAX}, **tiles)
    found = links(at)
    assert ("**N=2048**" in found) == lit and ("N=2048" in found) != lit
    suggested = "Tile sizes of the small example: Br 4, Bc 8." in texts(at)
    assert suggested == (not lit)
    if not lit:
        for link in (found["N=2048"], found["Br 32, Bc 32"]):
            target, _ = ADDRESS.read(link)
            assert target.shape == LONG and target.tiles == {"Br": 32, "Bc": 32}


def test_a_typed_shape_takes_the_tiles_of_its_recording():
    before = VARIANTS | ADDRESS.read(LONG.params() | {"N": DEFAULT.N})[0].params()
    typed = before | {"N": LONG.N}
    assert ADDRESS.follow(before, typed) == typed | {"Br": 32, "Bc": 32}
    assert ADDRESS.follow(typed, typed | {"Br": 8}) == typed | {"Br": 8}  # chosen at this shape
    chosen = {"Br": 8, "Bc": 16}
    assert ADDRESS.follow(before | chosen, typed | chosen) == typed | chosen
    unrecorded = before | {"N": LONG.N - 1}
    assert ADDRESS.follow(before, unrecorded) == unrecorded


@given(
    st.fixed_dictionaries(
        {
            "H": st.integers(1, 16),
            "N": st.integers(1, 40),
            "M": st.integers(0, 40),
            "kv_heads": st.integers(0, 16),
            "window": st.integers(0, 9),
            "softcap": st.sampled_from([0.0, 2.5]),
            "mask": st.sampled_from(["none", "bool", "bias"]),
        }
    )
)
def test_variants_are_read_and_heads_that_do_not_divide_are_corrected(values):
    query, notes = ADDRESS.read(values)
    wrong = values["kv_heads"] and values["H"] % values["kv_heads"]
    assert bool(notes) == bool(wrong)
    expected = values | ({"kv_heads": 0} if wrong else {})
    assert query.shape == DEFAULT.with_(**expected)
    assert ADDRESS.read(ADDRESS.write(query)) == (query, [])


@pytest.mark.parametrize("key", ["decode-toy", "mask-toy", "mistral-8192", "t5-bias"])
def test_a_variant_opens_with_its_fields_and_sentences(key):
    s = ATTENTION_PRESETS[key].shape
    at = open_at(**ADDRESS.at_shape(ADDRESS.read({})[0], s))
    html = texts(at)
    assert "K and V take" in html and ("The mask takes" in html) == (s.mask != "none")
    assert (f"S <b>{s.N:,}×{s.keys:,}</b>" in html) and {"M", "window", "softcap"} <= {n.key for n in at.number_input}


def test_memory_sentence_has_the_tiles_of_the_page():
    assert "one tile of 4 × 8 scores per block" in texts(open_at(view="run"))


@pytest.mark.parametrize("view", ["watch", "run", "why", "kernel", "memory", "traffic", "processor"])
def test_each_view_shows_only_its_part(view):
    at = open_at(view=view)
    html = texts(at)
    assert bool([b for b in at.button if b.key == "run"]) == (view in ("run", "why"))
    assert ("Memory against N" in html) == (view == "memory")
    assert ("Bytes moved at each level" in html) == (view == "traffic")
    assert bool([b for b in at.button if b.key == "measure_attention_cpu"]) == (view == "processor")
    assert bool(at.code) == (view == "kernel") and len(stages(at)) == (view == "watch")
    assert not at.number_input and "<h1" not in html


def test_invalid_parameters_are_named_and_escaped():
    at = open_at(N="abc", d="1e400", rung="<script>alert(1)</script>", Br="-3", H="5", values="<i>")
    html = texts(at)
    assert "N must be a whole number" in html and "&lt;script" in html and "<script" not in html
    assert at.number_input(key="H").value == 5 and at.number_input(key="N").value == DEFAULT.N


@pytest.mark.parametrize("name", [name for name, rung in RUNGS.items() if not rung.library])
def test_own_rungs_have_a_stage_or_a_reason(name):
    copied = "wgmma" in name or "ring" in name  # by the copy engine: rows of a multiple of 16 bytes
    shape = DEFAULT.with_(dtype="fp16" if "mma" in name or copied else "fp32")
    if name in traffic.VARIANT_KERNELS:
        shape = shape.with_(M=40)
    if copied:
        shape = shape.with_(d=8)
    tiles = tile_sizes.default_tiles_for(RUNGS[name], shape)
    at = open_at(view="watch", **shape.params(), rung=name, **tiles)
    if reason := why_not(shape, f"attention/{name}", tiles):
        assert not stages(at) and reason in texts(at)
    else:
        (scene,) = stages(at)
        assert scene.startswith(f"attention/{name} ") and all(f"{n}={v}" in scene for n, v in tiles.items())


def test_a_stage_alone_says_why_its_kernel_cannot_run():
    at = open_at(view="watch", **DEFAULT.with_(dtype="fp32").params(), rung="flash-mma")
    assert not stages(at) and "dtype must be fp16 or bf16, got fp32" in texts(at)


def test_unsupported_dtype_is_named_with_links_to_supported_rungs():
    at = open_at(dtype="bf16", rung="flash")
    assert "Flash attention cannot run with these settings: dtype must be fp32, got bf16." in texts(at) and not stages(
        at
    )
    target, _ = ADDRESS.read(links(at)[RUNGS["flash-mma"].title])
    assert target.shape == DEFAULT.with_(dtype="bf16") and target.broken == []


def test_head_larger_than_the_tiles_is_named_and_other_rungs_remain():
    at = open_at(d=200)
    html = texts(at)
    assert "Flash attention cannot run with these settings: d &lt;= 128, got 200." in html and "kt-note" not in html
    assert strip(at)["run"]["can"] and "naive" in html


def test_library_has_no_stage_but_a_reason():
    at = open_at(rung="cublas")
    assert not stages(at) and "Its source is not open" in texts(at) and strip(at)["run"]["can"]


def test_each_kind_of_values_gives_another_scene():
    pages = {kind: open_at({address.VALUES: kind}, view="watch") for kind in KINDS}
    messages = {kind: components(at)[0].proto.bytes for kind, at in pages.items()}
    assert len(set(messages.values())) == len(KINDS)


def test_matrix_larger_than_memory_is_reported():
    html = texts(open_at(engine="cpu", B=4, H=16, N=65_536, d=64, Br=32, Bc=32))
    assert "S and P take 2.2 TB" in html and "naive fits up to N" in html


def test_run_uses_page_tiles_for_the_selected_rung_only():
    watched, chosen_tiles = RUNGS["flash"], {"Br": 8, "Bc": 16}
    at = open_at(engine="cpu", N=40, causal=1, **chosen_tiles)
    finish(at, "run", "job")
    rows = at.session_state["ran"].rows
    shape = DEFAULT.with_(N=40, causal=1)
    assert list(rows) == [r.name for r in ADDRESS.supported_rungs(shape) if "cpu" in r.engines] and len(rows) == 5
    for name, row in rows.items():
        default_tiles = RUNGS[name.partition("/")[2]].default_tiles
        assert row["tiles"] == (chosen_tiles if name == watched.name else default_tiles) and row["error"] < 1e-5
    html = texts(at)
    assert "kt-badge-measured" in html and "kt-stale" not in html and "Flash attention" in html
    at.selectbox(key="Br").select(4).run()
    assert "stale: measured at B1 H1 N40 d4 causal" in texts(at) and not at.exception


def test_recorded_peaks_are_compared_with_the_prediction():
    shape, found = ATTENTION_PRESETS["attention-8192"].shape, []
    for name in ("naive", "flash"):
        rung = RUNGS[name]
        peak = rung.build(shape, rung.default_tiles).nbytes()
        found.append(
            a_full_row(
                rung=rung.name,
                shape=shape.params(),
                tiles=rung.default_tiles,
                engine="cuda",
                device="a GPU",
                peak_bytes=peak,
                flops=shape.flops,
            )
        )
    with recordings(*found):
        html = texts(open_at(view="memory", **ADDRESS.at_shape(ADDRESS.read({})[0], shape)))
        other = texts(open_at(view="memory", H=3, N=8192, d=64))
    assert "recorded a GPU, peak: ◆" in html and "2 measured peaks have a prediction. All equal it to the byte." in html
    assert "recorded a GPU" not in other and "peaks" not in other


def test_home_card_shows_the_scene_of_the_lesson():
    teaser = _teasers.BY_PAGE["attention/page.py"]
    assert 0 < teaser.step < teaser.build_scene().steps
    assert stages(open_at(view="watch", **teaser.params)) == [teaser.build_scene().key]


def test_the_map_of_a_launch():
    size = {"B": 4, "H": 16, "N": 2048, "d": 64}
    at = open_at(order="map", rung="flash", Br=32, Bc=32, **size)
    assert stages(at)[0].startswith("map attention/flash")
    at = open_at(order="map", rung="flash", Br=4, Bc=8, **size)  # not compiled ahead: its registers are not known
    assert not stages(at)[0].startswith("map") and "How many blocks fit on an SM is not known" in texts(at)
    assert not stages(open_at(order="map", rung="naive"))[0].startswith("map"), "it has no such order"


@pytest.mark.parametrize(("rung", "offered"), [("fused", False), ("flash", True), ("flash-registers", True)])
def test_rungs_with_tiles_of_keys_have_a_timeline(rung, offered):
    at = open_at(rung=rung, order="timeline")
    assert stages(at)[0].endswith("timeline") == offered
    assert ("timeline" in [order["name"] for order in heads(at)[0]["orders"]]) == offered


def test_tiles_of_a_kernel_that_cannot_run_the_first_shape_are_not_called_small():
    at = open_page("attention/page.py", view="explore", rung="flash-decode", M="64", N="1")
    assert "small example" not in texts(at)


@pytest.mark.parametrize(
    "params, link",
    [
        ({"rung": "wgmma"}, "N=32, FP16"),
        ({"rung": "flash-variants"}, "Toy decoding, 32 keys"),
        ({"M": "24"}, "Toy N=8"),
    ],
)
def test_a_kernel_that_cannot_run_the_shape_links_to_one_that_it_runs(params, link):
    at = open_at(**params)
    assert "A shape for " in texts(at) and link in links(at)


@pytest.mark.parametrize("rung", RINGS)
def test_each_rung_for_hopper_opens_with_its_ring(rung):
    variant = {"window": "100"} if rung.endswith("variants") else {}
    at = open_at(rung=rung.removeprefix("attention/"), N="256", d="64", dtype="fp16", causal="1", **variant)
    assert stages(at)[0].startswith(f"{rung} ") and stages(at)[0].endswith(" ring")
    assert [*address.orders(rung)] == ["ring"]
