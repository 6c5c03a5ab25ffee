"""Links with values that a lesson does not have, or that contradict each other: the page opens and says so."""

import re
from urllib.parse import parse_qsl

import pytest

from pages._lessons import LESSONS
from tests.helpers.page_runner import open_page, texts

NOTE = re.compile(r'class="kt-note"[^>]*>(.*?)</p>', re.S)
LINKS = {  # the link, and a piece of its note
    "threads?topic=nonsense&stride=99": "topic must be one of threads, divergence, coalescing",
    "threads?topic=banks&stride=0": "stride must be 1 to 32",
    "tiling?M=abc&N=inf&K=0&BM=17&alpha=nan&dtype=fp64": "M must be a whole number",
    "tiling?order=nothing": "order must be one of explaining",
    "tiling?view=race": "view must be one of explore, story",
    "tiling?view=story&chapter=2&M=4096": "The link sets M=4096",
    "hopper?swizzle=64&dtype=fp32&order=timeline": "swizzle must be one of 128",
    "hopper?view=explore&order=accumulator&warp=9&M=0": "warp must be one of 0",
    "direct?H=1&W=1&R=9&S=9&pad_h=0": "The filter must fit the padded input",
    "direct?C=-3&K=1e9&filter=none": "C must be 1 to",
    "im2col?H=2&R=3&dilation_h=5&groups=7": "The filter must fit the padded input",
    "im2col?view=story&chapter=0": "chapter must be a number from 1",
    "implicit?rung=nonsense&BM=3": "rung must be one of",
    "winograd?kernel=9x9": "kernel must be one of 2x2",
    "winograd?R=5&S=5&u=2": "Winograd cannot run",
    "fft?transform=2&room=xx": "transform must be one of whole",
    "choose?H=nan&predict=nobody": "H must be a whole number",
    "backward?gradient=sideways&H=0": "gradient must be one of input",
    "softmax?M=0&logits=zz": "logits must be one of small",
    "layers?layer=nothing&pass=both": "layer must be one of relu",
    "layers?layer=layer-norm&pass=update": "pass must be one of forward, backward",
    "attention?N=0&d=7&Br=5&rung=flash-mma": "N must be 1 to",
    "attention?view=story&chapter=abc&lang=xx": "chapter must be a number from 1",
    "fusion?chain=%00%01&N=-5": "N must be 1 to 256",
}


@pytest.mark.parametrize("link", LINKS)
def test_the_page_opens_with_a_note(link):
    path, _, query = link.partition("?")
    page = next(lesson.page for lesson in LESSONS if lesson.path == path)
    at = open_page(page, **dict(parse_qsl(query)))
    assert not at.exception
    notes = " ".join(NOTE.findall(texts(at)))
    assert LINKS[link] in notes
    assert "<script" not in notes


@pytest.mark.parametrize("view", ["", "explore", "watch", "kernel", "why"])
def test_a_view_of_the_lesson_needs_no_note(view):
    at = open_page("softmax/page.py", **({"view": view} if view else {}))
    assert not NOTE.findall(texts(at))
