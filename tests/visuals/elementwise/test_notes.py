"""Sentences about the figures of the elementwise ladders."""

from __future__ import annotations

from kernels.elementwise import ladder as elementwise
from kernels.elementwise.shape import KEPT, ReluShape, ResidualShape
from tests.helpers.offenders import every
from visuals.charts.beside import beside_copy
from visuals.elementwise.notes import NOTES


def row(rung: str, ms: float, shape, **more):
    return {"rung": rung, "engine": "cuda", "shape": shape.params(), "median_ms": ms, "p20_ms": ms, "p80_ms": ms} | more


@every("ladder", elementwise.LADDERS, ids=lambda ladder: ladder.name)
def test_every_ladder_has_a_story_at_each_preset(ladder):
    for preset in ladder.presets.values():
        text = NOTES[ladder.name].cost(preset.shape)
        assert "bytes per element" in text and "{" not in text
    assert NOTES[ladder.name].gain({}) == ""


def test_what_is_kept_is_named_with_its_bytes():
    texts = [NOTES["relu"].cost(ReluShape(64, 256, 56, 56, keep)) for keep in KEPT]
    assert "must stay in memory: 206 MB" in texts[0]
    assert "mask of bytes is kept too: 51.4 MB" in texts[1]
    assert "mask of bits is kept too: 6.42 MB" in texts[2]


def test_gain_names_the_plain_kernel_pytorch_and_the_copy():
    shape = ResidualShape(64, 256, 56, 56)
    ceilings = {"copy_bytes_per_s": 4e12}
    rows = {
        name: row(name, ms, shape, ceilings=ceilings)
        for name, ms in (
            ("residual/two-launches", 0.3),
            ("residual/scalar", 0.2),
            ("residual/float4", 0.16),
            ("residual/library", 0.32),
        )
    }
    text = NOTES["residual"].gain(rows)
    assert "“float4, several per thread” is 1.88× as fast as “addition, then ReLU”." in text
    assert "is 2× as fast as PyTorch, eager." in text
    assert "A copy that moves 617 MB takes 154 µs. The kernel takes 1.04× that time." in text
    rows["residual/two-launches"] |= {"median_ms": 0.1, "p20_ms": 0.1, "p80_ms": 0.1}
    assert "“addition, then ReLU” is the fastest of our kernels" in NOTES["residual"].gain(rows)


def test_no_copy_is_named_where_launches_take_longer():
    best = row("relu/scalar", 0.004, ReluShape(1, 1, 4, 4), ceilings={"copy_bytes_per_s": 4e12, "launch_us": 2})
    assert beside_copy(ReluShape(1, 1, 4, 4), best) == ""
    assert beside_copy(ReluShape(1, 1, 4, 4), best | {"ceilings": None}) == ""
