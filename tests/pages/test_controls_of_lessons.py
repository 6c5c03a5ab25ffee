"""A changed control changes the scene on the stage and the URL, and keeps the other parameters; links do the same."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests.helpers.page_runner import links, open_page, stages, texts


class Change(NamedTuple):
    page: str
    params: dict[str, str]
    key: str  # of the control
    value: object
    scene: str  # a pattern that the scene's key has afterwards, and had not before
    kept: tuple[str, ...] = ()  # parameters that stay in the URL


CHANGES = (
    Change("memory/page.py", {"topic": "coalescing"}, "stride", 8, r"\b8\b", ("topic",)),
    Change("gemm/page.py", {"M": "64", "N": "64", "K": "64"}, "BM", 8, "BM=8,BN=32"),
    Change("conv/implicit/page.py", {"H": "9"}, "STAGES", 2, "STAGES=2", ("H",)),
    Change("conv/winograd/page.py", {"picture": "digit"}, "kernel", "6x6-steps", "winograd-nonfused .*M=6,", ("picture",)),
    Change("conv/fft/page.py", {"picture": "digit"}, "room", "too small", " too small ", ()),
    Change("conv/fft/page.py", {"H": "30", "W": "30", "pad_h": "1", "pad_w": "1"}, "transform", "16", "FFT_TILE=16,", ("H",)),
    Change("conv/direct.py", {"picture": "numbers"}, "K", 3, "K=3,", ("picture",)),
    Change("conv/im2col.py", {"picture": "numbers"}, "N", 2, "N=2", ("picture",)),
    Change("conv/backward/page.py", {"gradient": "filters"}, "H", 7, "H=7", ("gradient",)),
    Change("softmax/page.py", {"logits": "own numbers", "rung": "three-pass"}, "numbers", "3 -inf 100", " 3:", ("logits", "rung")),
    Change("layers/page.py", {"layer": "max-pool"}, "W", 8, "max-pool/window .*N1 C1 5x8 ", ("layer",)),
    Change("precision/page.py", {"topic": "bits"}, "x", 2049.0, "bits FP16 2049.0", ()),
    Change("attention/page.py", {"causal": "1"}, "Bc", 16, "attention/flash Br=4,Bc=16 .*causal", ("causal",)),
    Change("fusion/page.py", {"N": "2"}, "C", 3, "of N2 C3 ", ("N",)),
)  # fmt: skip


def control(at, key):
    kinds = (at.number_input, at.text_input, at.selectbox, at.get("button_group"))
    return next(each for kind in kinds for each in kind if each.key == key)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.page}-{change.key}")
def test_a_control_changes_scene_and_url(change):
    at = open_page(change.page, view="explore", **change.params)
    before = stages(at)
    control(at, change.key).set_value(change.value).run()
    assert not at.exception
    (scene,) = stages(at)
    assert [scene] != before and re.search(change.scene, scene)
    found = {name: value[0] if isinstance(value, list) else value for name, value in at.query_params.items()}
    assert {name: found.get(name) for name in change.kept} == {name: change.params[name] for name in change.kept}


def test_links_to_another_kernel_keep_what_was_chosen():
    found = links(open_page("attention/page.py", view="explore", causal="1", values="large"))["1 naive"]
    assert found["rung"] == "naive" and found["causal"] == "1" and found["values"] == "large" and "Bc" not in found
    found = links(open_page("conv/implicit/page.py", view="explore", STAGES="2"))["1 implicit GEMM, plain divisions"]
    assert found["rung"] == "implicit-gemm-plain" and found["STAGES"] == "2"
    found = links(open_page("gemm/page.py", M="64", N="64", K="64", BM="8", rung="shared-tile"))["2 naive, coalesced"]
    assert found["rung"] == "naive" and "BM" not in found
    found = links(open_page("fusion/page.py", rung="unfused"))["3 batch norm folded, fused"]
    assert found["rung"] == "folded"


def test_links_to_another_topic_lead_there():
    assert links(open_page("memory/page.py"))["banks"]["topic"] == "banks"
    at = open_page("precision/page.py", topic="bits", format="BF16", x="3")
    assert links(at)["INT8"]["topic"] == "int8"
    assert stages(open_page("precision/page.py", **links(at)["INT8"])) == ["int8 fc2 3 tensor"]
    at = open_page("conv/backward/page.py", gradient="input", H="7", rung="gemm-gather")
    assert links(at)["filters"]["gradient"] == "filters" and links(at)["filters"]["H"] == "7"
    at = open_page("layers/page.py", layer="max-pool", H="7", R="2", pad_h="0")
    assert links(at)["bias"]["layer"] == "bias" and "H" not in links(at)["bias"]


def blocks(block):
    for child in getattr(block, "children", {}).values():
        if hasattr(child, "children"):
            yield child
            yield from blocks(child)


@pytest.mark.parametrize(("logits", "shown"), [("own numbers", True), ("large", False)])
def test_the_row_of_softmax_is_hidden_until_it_is_chosen(logits, shown):
    """Hidden by its container's key: theme.css has a rule for it."""
    at = open_page("softmax/page.py", logits=logits, rung="three-pass")
    ids = [getattr(block.proto, "id", "") for block in blocks(at.main)]
    assert any(each.endswith("own_numbers") for each in ids) == shown
    assert any(each.endswith("away_numbers") for each in ids) != shown


def test_a_bad_row_is_named_and_a_good_one_is_computed():
    at = open_page("softmax/page.py", logits="own numbers", rung="three-pass")
    control(at, "numbers").set_value("1 2 nonsense").run()
    assert "“nonsense” is not a number" in texts(at)
    control(at, "numbers").set_value("3 -inf 100").run()
    assert "is not a number" not in texts(at) and "NaN in 1 of 3" in texts(at)


def test_options_that_do_not_exist_are_the_defaults():
    at = open_page("conv/im2col.py", engine="cpu", TILE="7", caches="<b>", BLOCK="1e9")
    chosen = {each.key: str(each.value) for each in at.get("button_group") if each.key in ("TILE", "caches", "BLOCK")}
    assert chosen == {"TILE": "16", "caches": "cold", "BLOCK": "256"}


def test_a_bound_of_a_field_says_its_rule():
    at = open_page("conv/im2col.py", view="explore", H="9")
    control(at, "R").set_value(9).run()
    assert "R ≤ 9 here: the filter must fit the padded input: dilation*(R-1)+1 &lt;= H+2*pad_h" in texts(at)
