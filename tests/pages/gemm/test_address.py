"""The address of the GEMM lesson and the rules of its tile sizes: what is written reads back, what is hostile is mended."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.runner import compare
from pages.gemm import address
from pages.gemm.address import DEFAULT, RUNGS
from pages.parts import tiles as tile_sizes
from tests.helpers.hostile import anything, bounds_hold, changed_with_a_note, valid

EXTENTS = st.integers(1, address.MOST)
FACTORS = st.floats(-address.MOST_FACTOR, address.MOST_FACTOR).map(lambda value: float(f"{value:.3g}"))
SHAPES = st.fixed_dictionaries(
    {"M": EXTENTS, "N": EXTENTS, "K": EXTENTS, "alpha": FACTORS, "beta": FACTORS}
    | {"dtype": st.sampled_from(["fp32", "fp16", "bf16", "int8"])}
)
ANYTHING = anything(RUNGS)


@st.composite
def asked(draw):
    rung = RUNGS[draw(st.sampled_from(list(RUNGS)))]
    tiles = {name: draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    read, _ = address.read(draw(SHAPES))
    return address.Asked(rung, tiles, read.shape)


# -- the address -----------------------------------------------------------------------------------
@given(asked())
def test_what_is_written_reads_back(one):
    assert address.read(address.write(one)) == (one, [])


@given(SHAPES)
def test_a_mended_shape_keeps_the_rules_and_changes_nothing_without_a_note(values):
    read, notes = address.read(values)
    got = read.shape
    assert max(got.elements.values()) <= address.MOST_ELEMENTS
    changed_with_a_note(got, DEFAULT, values, notes)


@given(
    st.dictionaries(
        st.sampled_from(["M", "N", "K", "alpha", "beta", "dtype", "rung", "BM", "BK", "TM"]), ANYTHING
    )
)
def test_hostile_values_give_a_valid_state_and_say_why(raw):
    valid(*address.read(raw), GemmShape, RUNGS)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"M": "0"}, "M must lie in 1 .. 65536 on this page, got “0”: M=64 is used"),
        ({"K": "1e9"}, "K must lie in 1 .. 65536 on this page, got “1e9”: K=64 is used"),
        ({"N": "8.5"}, "N must be a whole number, got “8.5”: N=64 is used"),
        ({"alpha": "nan"}, "alpha must be a number, got “nan”: alpha=1.0 is used"),
        ({"dtype": "fp64"}, "dtype must be one of fp32, fp16, bf16, int8; got “fp64”: dtype=fp32 is used"),
        ({"M": "65536", "N": "65536"}, "C may have 268,435,456 elements on this page, M*N is 4,294,967,296: M=64 is used"),
        ({"BM": "17"}, "BM must be one of 8, 16, 32; got “17”: BM=32 is used"),
        ({"rung": "<b>"}, f"rung must be one of {', '.join(RUNGS)}; got “<b>”: rung=shared-tile is used"),
        ({"dtype": "int8", "alpha": "0.5", "rung": "naive"}, "alpha must be a whole number where dtype is int8, got 0.5: alpha=1.0 is used"),
    ],
)  # fmt: skip
def test_notes_name_the_rule_the_limit_and_what_is_used(raw, says):
    assert address.read(raw)[1] == [says]


@given(SHAPES)
def test_no_field_can_be_turned_to_a_shape_that_is_mended(values):
    shape = address.read(values)[0].shape
    bounds_hold(shape, address.bounds(shape), address.read)


@settings(deadline=None)
@given(asked(), st.sampled_from(list(GEMM_PRESETS)))
def test_a_link_to_a_preset_leads_to_something_that_runs(one, key):
    there, notes = address.read(address.at_shape(one, GEMM_PRESETS[key].shape))
    assert there.shape == GEMM_PRESETS[key].shape and notes == []
    if address.able(there.shape):
        assert there.broken == []
    if there.rung is one.rung and not tile_sizes.broken(one.rung, there.shape, one.tiles):
        fits = tile_sizes.fitting(one.rung, there.shape)
        nobodys = one.tiles in (one.rung.default_tiles, tile_sizes.fitting(one.rung, one.shape))
        assert there.tiles == (fits if nobodys else one.tiles)  # nothing chosen is given up without need


# -- tile sizes ------------------------------------------------------------------------------------
@settings(deadline=None)
@given(asked(), st.integers(1, 40))
def test_choices_nearest_and_tried_are_legal(one, most):
    rung, shape, tiles = one.rung, one.shape, one.tiles
    legal = tile_sizes.legal(rung, shape)
    for name, choices in tile_sizes.choices(rung, shape, tiles).items():
        assert tiles[name] in choices
        for value in rung.tiles[name]:
            assert (value in choices) == ({**tiles, name: value} in legal or value == tiles[name])
    near = tile_sizes.nearest(rung, shape, tiles)
    assert near in legal if legal else near is None
    if tiles in legal:
        assert near == tiles
    tried = tile_sizes.tried(rung, shape, tiles, most)
    assert len(tried) == min(most, len(legal)) and all(t in legal for t in tried)
    assert len({tuple(t.values()) for t in tried}) == len(tried)
    assert tiles in tried or tiles not in legal


@pytest.mark.parametrize("rung", RUNGS.values(), ids=lambda rung: rung.name)
def test_tiles_that_fit_are_a_compiled_set_and_part_the_matrix_where_one_can(rung):
    for preset in GEMM_PRESETS.values():
        shape, fits = preset.shape, tile_sizes.fitting(rung, preset.shape)
        if tile_sizes.broken(rung, shape, rung.default_tiles) or rung.library:
            assert fits == rung.default_tiles
            continue
        sets = list(rung.tile_sets(shape))
        blocks = {tuple(t.values()): rung.build(shape, t).steps[0].grid[:2] for t in sets}
        mine = blocks[tuple(fits.values())]
        if blocks[tuple(rung.default_tiles.values())] != (1, 1):
            assert fits == rung.default_tiles
        elif parted := [grid for grid in blocks.values() if min(grid) >= 2]:
            assert min(mine) >= 2 and mine[0] * mine[1] == min(x * y for x, y in parted)
        else:
            assert mine == (1, 1)


def test_at_first_sight_and_from_chip_to_chip_the_tiles_are_seen():
    first, _ = address.read({})
    assert first.shape == GEMM_PRESETS["square-64"].shape and first.tiles == {"BM": 32, "BN": 32, "BK": 32}
    toy, _ = address.read(address.at_shape(first, GEMM_PRESETS["square-16"].shape))
    assert toy.tiles == {"BM": 8, "BN": 8, "BK": 8}
    assert address.read(address.at_shape(toy, first.shape))[0] == first
    there = address.at_rung(first, RUNGS["vectorized"])
    assert there == {"rung": "vectorized", "BM": "32", "BN": "32", "BK": "8", "TM": "4", "TN": "4"}


def test_an_entry_under_a_rungs_name_reaches_that_rung_alone():
    other = RUNGS["shared-tile"].default_tiles | {"BM": 8}
    names = ["gemm/naive", "gemm/shared-tile"]
    results = compare(names, DEFAULT, engine="cpu", tiles={"gemm/shared-tile": other}, measure=False)
    assert [dict(r.tiles) for r in results] == [RUNGS["naive"].default_tiles, other]
