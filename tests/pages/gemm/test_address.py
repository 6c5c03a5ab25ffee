"""Tests of the GEMM lesson's URL and the rules of its tile sizes: round trips, corrected invalid values."""

from hypothesis import given
from hypothesis import strategies as st

from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.runner import compare
from pages.gemm import address
from pages.gemm.address import DEFAULT, RUNGS
from pages.parts import tiles as tile_sizes
from pages.parts.rung_address import Selection
from tests.helpers.hostile import anything, assert_bounds, assert_changed_with_note, assert_valid
from tests.helpers.offenders import every

EXTENTS = st.integers(1, address.MAX)
FACTORS = st.floats(-address.MAX_FACTOR, address.MAX_FACTOR).map(lambda value: float(f"{value:.3g}"))
SHAPES = st.fixed_dictionaries(
    {"M": EXTENTS, "N": EXTENTS, "K": EXTENTS, "alpha": FACTORS, "beta": FACTORS}
    | {"dtype": st.sampled_from(["fp32", "fp16", "bf16", "int8"])}
)
ANYTHING = anything(RUNGS)


@st.composite
def queries(draw):
    rung = RUNGS[draw(st.sampled_from(list(RUNGS)))]
    tiles = {name: draw(st.sampled_from(choices)) for name, choices in rung.tiles.items()}
    parsed, _ = address.read(draw(SHAPES))
    return Selection(rung, tiles, parsed.shape)


# -- the URL ---------------------------------------------------------------------------------------
@given(queries())
def test_written_parameters_read_back_equal(query):
    assert address.read(address.write(query)) == (query, [])


@given(SHAPES)
def test_corrected_shape_keeps_the_rules_and_notes_each_change(values):
    parsed, notes = address.read(values)
    got = parsed.shape
    assert max(got.elements.values()) <= address.MAX_ELEMENTS
    assert_changed_with_note(got, DEFAULT, values, notes)


@given(st.dictionaries(st.sampled_from(["M", "N", "K", "alpha", "beta", "dtype", "rung", "BM", "BK", "TM"]), ANYTHING))
def test_invalid_values_give_a_valid_state_and_notes(raw):
    assert_valid(*address.read(raw), GemmShape, RUNGS)


@every(
    ("raw", "says"),
    [
        ({"M": "0"}, "M must be 1 to 65,536 on this page, got “0”: M=64 is used"),
        ({"K": "1e9"}, "K must be 1 to 65,536 on this page, got “1e9”: K=64 is used"),
        ({"N": "8.5"}, "N must be a whole number, got “8.5”: N=64 is used"),
        ({"alpha": "nan"}, "alpha must be a number, got “nan”: alpha=1.0 is used"),
        ({"dtype": "fp64"}, "dtype must be one of fp32, fp16, bf16, int8; got “fp64”: dtype=fp32 is used"),
        (
            {"M": "65536", "N": "65536"},
            "C may have at most 268,435,456 elements on this page, M*N is 4,294,967,296: M=64 is used",
        ),
        ({"BM": "17"}, "BM must be one of 8, 16, 32; got “17”: BM=32 is used"),
        ({"rung": "<b>"}, f"rung must be one of {', '.join(RUNGS)}; got “<b>”: rung=shared-tile is used"),
        (
            {"dtype": "int8", "alpha": "0.5", "rung": "naive"},
            "alpha must be a whole number if dtype is int8, got 0.5: alpha=1.0 is used",
        ),
    ],
)
def test_notes_name_rule_limit_and_value_used(raw, says):
    assert address.read(raw)[1] == [says]


@given(SHAPES)
def test_field_bounds_allow_only_valid_shapes(values):
    shape = address.read(values)[0].shape
    assert_bounds(shape, address.bounds(shape), address.read)


@given(queries(), st.sampled_from(list(GEMM_PRESETS)))
def test_preset_link_leads_to_a_runnable_query(query, key):
    target, notes = address.read(address.at_shape(query, GEMM_PRESETS[key].shape))
    assert target.shape == GEMM_PRESETS[key].shape and notes == []
    if address.supported(target.shape):
        assert target.broken == []
    if target.rung is query.rung and not tile_sizes.broken(query.rung, target.shape, query.tiles):
        default_tiles = tile_sizes.default_tiles_for(query.rung, target.shape)
        not_chosen = query.tiles in (query.rung.default_tiles, tile_sizes.default_tiles_for(query.rung, query.shape))
        assert target.tiles == (
            default_tiles if not_chosen else query.tiles
        )  # chosen tile sizes are kept if they are legal


# -- tile sizes ------------------------------------------------------------------------------------
@given(queries(), st.integers(1, 40))
def test_choices_nearest_and_tried_tiles_are_legal(query, maximum):
    rung, shape, tiles = query.rung, query.shape, query.tiles
    legal = tile_sizes.legal(rung, shape)
    for name, choices in tile_sizes.choices(rung, shape, tiles).items():
        assert tiles[name] in choices
        for value in rung.tiles[name]:
            assert (value in choices) == ({**tiles, name: value} in legal or value == tiles[name])
    nearest = tile_sizes.nearest(rung, shape, tiles)
    assert nearest in legal if legal else nearest is None
    if tiles in legal:
        assert nearest == tiles
    tried = tile_sizes.sweep_candidates(rung, shape, tiles, maximum)
    assert len(tried) == min(maximum, len(legal)) and all(t in legal for t in tried)
    assert len({tuple(t.values()) for t in tried}) == len(tried)
    assert tiles in tried or tiles not in legal


@every("rung", RUNGS.values(), ids=lambda rung: rung.name)
def test_default_tiles_are_precompiled_and_give_several_blocks_if_possible(rung):
    for preset in GEMM_PRESETS.values():
        shape, default_tiles = preset.shape, tile_sizes.default_tiles_for(rung, preset.shape)
        if tile_sizes.broken(rung, shape, rung.default_tiles) or rung.library:
            assert default_tiles == rung.default_tiles
            continue
        sets = list(rung.tile_sets(shape))
        blocks = {tuple(t.values()): rung.build(shape, t).steps[0].grid[:2] for t in sets}
        selected_grid = blocks[tuple(default_tiles.values())]
        if blocks[tuple(rung.default_tiles.values())] != (1, 1):
            assert default_tiles == rung.default_tiles
        elif grids := [grid for grid in blocks.values() if min(grid) >= 2]:
            assert min(selected_grid) >= 2 and selected_grid[0] * selected_grid[1] == min(x * y for x, y in grids)
        else:
            assert selected_grid == (1, 1)


def test_small_presets_get_tiles_smaller_than_the_matrix():
    first, _ = address.read({})
    assert first.shape == GEMM_PRESETS["square-64"].shape and first.tiles == {"BM": 32, "BN": 32, "BK": 32}
    toy, _ = address.read(address.at_shape(first, GEMM_PRESETS["square-16"].shape))
    assert toy.tiles == {"BM": 8, "BN": 8, "BK": 8}
    assert address.read(address.at_shape(toy, first.shape))[0] == first
    target = address.at_rung(first, RUNGS["vectorized"])
    assert target == {"rung": "vectorized", "BM": "32", "BN": "32", "BK": "8", "TM": "4", "TN": "4"}


def test_tiles_given_for_a_rung_apply_to_that_rung_only():
    other = RUNGS["shared-tile"].default_tiles | {"BM": 8}
    names = ["gemm/naive", "gemm/shared-tile"]
    results = compare(names, DEFAULT, engine="cpu", tiles={"gemm/shared-tile": other}, measure=False)
    assert [dict(r.tiles) for r in results] == [RUNGS["naive"].default_tiles, other]
