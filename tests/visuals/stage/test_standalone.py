"""The standalone page: its contents, its size, and that no content can end its element early."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from gzip import decompress
from html.parser import HTMLParser

import numpy as np
import pytest

from kernels.conv.shape import ConvShape
from visuals import stage
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.inputs import Inputs
from visuals.conv.part import part_of
from visuals.stage import standalone as standalone_module
from visuals.stage.standalone import SCENE_PLACEHOLDER, standalone

# Bytes of the toy scene's page, with the text of two kernels. Curves take 1,000 of them, names of what is counted 300,
# marks of faults 160.
LIMIT = 116_670


class Elements(HTMLParser):
    """Elements of a page by name, as [attributes, text up to the next tag]."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open = {}, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open = [dict(attrs), ""]
        self.found.setdefault(tag, []).append(self.open)

    def handle_endtag(self, tag):
        self.open = None

    def handle_data(self, data):
        if self.open:
            self.open[1] += data


@pytest.fixture(scope="module")
def message():
    shape = ConvShape(1, 1, 8, 8, 2, 3, 3)
    inputs, part = Inputs(shape, "digit", "sobel-x"), part_of(shape, np.zeros((8, 8)))
    return stage.message(im2col_scene(shape, part, inputs.x(), inputs.w(), "library"), step=4)


def test_the_page_contains_the_message(message):
    scripts = Elements(standalone(message)).found["script"]
    assert [attributes.get("id", attributes["type"]) for attributes, _ in scripts] == [
        "scene",
        "player",
        "takeaway",
        "module",
    ]
    assert b64decode(scripts[0][1], validate=True) == message
    length = int.from_bytes(message[:4], "little")
    assert json.loads(message[8 : 8 + length])["step"] == 4


def test_without_a_message_the_page_has_one_placeholder(message):
    template = standalone()
    assert Elements(template).found["script"][0][1] == SCENE_PLACEHOLDER
    scene = Elements(standalone(message)).found["script"][0][1]
    assert template.replace(SCENE_PLACEHOLDER, scene, 1) == standalone(message)


def test_the_page_sends_no_requests(message):
    page = standalone(message)
    found = Elements(page).found
    assert not {"link", "img", "iframe", "base", "a"} & found.keys()
    assert all(
        "src" not in attributes and "href" not in attributes
        for elements in found.values()
        for attributes, _ in elements
    )
    policy = next(a["content"] for a, _ in found["meta"] if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';") and "http" not in policy
    assert "@import" not in page and not re.search(r"url\((?!#)", Elements(page).found["style"][0][1])


def test_titles_are_escaped():
    page = standalone(title='</title><script>alert("1")</script>&')
    assert Elements(page).found["title"][0][1] == '</title><script>alert("1")</script>&'
    assert "<script>alert" not in page


def test_code_is_compressed_and_cannot_end_its_element(message, monkeypatch):
    code = 'const a = "</script><b>", b = "</SCRIPT >", c = /<\\/script/, d = "<!-- <script>";'
    monkeypatch.setattr(stage, "script", lambda: code + "export default function stage() {}")
    monkeypatch.setattr(standalone_module, "takeaway", lambda: code)
    found = Elements(standalone(message)).found
    assert len(found["script"]) == 4 and "b" not in found
    compressed = {attributes["id"]: text for attributes, text in found["script"] if "id" in attributes}
    decompressed = {name: decompress(b64decode(compressed[name])).decode() for name in ("player", "takeaway")}
    assert decompressed == {"player": stage.script(), "takeaway": code}


def test_styles_cannot_end_their_element():
    assert (
        standalone_module._escape_css('a::before { content: "</style>"; }') == 'a::before { content: "\\3c /style>"; }'
    )


def test_the_page_is_within_its_size_limit(message):
    assert len(standalone(message).encode()) <= LIMIT
