"""Figures that a page takes from recordings and builds: each is of its own kernel, cache mode and launch."""

import pytest

from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS, find
from kernels.machine.timing import MODES
from pages.parts import autotune, rates, sources, why
from pages.parts.run_settings import RunSettings
from pages.parts.sizes import REAL, Sizes, settings_by_size
from tests.helpers.rows_of import a_full_row
from visuals import units

LARGE, SMALL = GemmShape(4096, 4096, 4096), GemmShape(64, 64, 64)


@pytest.mark.parametrize("mode", MODES)
def test_a_curve_over_sizes_has_times_of_one_cache_mode(mode):
    lines = rates.recorded_sizes(LADDERS["gemm"], mode, lambda shape: shape.M)
    assert {row["mode"] for _, points in lines for _, row in points} <= {mode}
    assert lines or mode == "hot"


def test_recorded_tile_sizes_are_of_one_kernel():
    rows, _ = autotune.recorded(find("gemm/register-tile-2d"), LARGE, "cold")
    assert {row["rung"] for row in rows} == {"gemm/register-tile-2d"}


def test_shared_memory_beside_a_source_is_that_of_the_file_and_of_the_launch():
    rung = find("gemm/wgmma-ring")
    (launch,) = rung.build(LARGE, rung.default_tiles).steps
    of_file = sources.resources(launch.source, launch.defines)["shared_bytes"]
    assert launch.shared and units.bytes_(of_file + launch.shared) in sources.needs(sources.Use(rung, launch))


def test_tile_sizes_that_a_reader_chose_hold_at_the_real_size_too():
    rung = find("gemm/shared-tile")
    chosen = next(tiles for tiles in rung.tile_sets(LARGE) if tiles != rung.tiles_at(LARGE))
    stage = RunSettings(LADDERS["gemm"], SMALL, "cpu", "cold", tuple(chosen.items()), tiles_rung=rung.name)
    for tiles, expected in ((chosen, chosen), ({}, rung.tiles_at(LARGE))):
        sizes = Sizes(str, lambda shape: LARGE, tiles)
        assert dict(settings_by_size(stage, rung, sizes)[REAL].tiles) == expected


def test_the_table_of_why_has_speeds_relative_to_the_library():
    slow, library = a_full_row(samples=[2.0] * 3), a_full_row(rung="conv/im2col-cublas", samples=[0.5] * 3, tiles={})
    cells = why._measured([slow, library, None], slow, library)
    assert cells["speed, relative to the fastest library"] == ["25 %", "100 %", "–"]
