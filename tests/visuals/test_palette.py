"""Grounds, roles and outlines differ for every eye, and text is readable on every ground.

Differences are CIE76: Euclidean distance in CIE Lab (D65). About 2.3 is just visible side by side.
Colour-blind eyes are simulated as in Machado, Oliveira and Fernandes, "A Physiologically-based Model for
Simulation of Color Vision Deficiency", IEEE TVCG 15(6), 2009, doi:10.1109/TVCG.2009.113: the published
matrices of severity 1.0, for linear RGB. Contrast is WCAG 2's.
"""

import re
from itertools import combinations

import numpy as np
import pytest

from visuals.palette import DARK, LIGHT
from visuals.stage import HERE

EYES = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)

PALETTES = {"light": LIGHT, "dark": DARK}
GROUNDS = ("panel", "workspace-ground", "shared-ground", "registers-ground")
ROLES = ("input", "filter", "output", "workspace")

# Grounds are large neighbouring areas, so a small difference is enough. Hues are in cells and small words.
MIN_GROUND_DIFFERENCE, MIN_GROUND_DIFFERENCE_GREY = 3.0, 1.2
MIN_ROLE_DIFFERENCE, MIN_OUTLINE_DIFFERENCE = 12.0, 40.0

themes = pytest.mark.parametrize("palette", PALETTES.values(), ids=PALETTES)
eyes = pytest.mark.parametrize("eye", EYES)


def linear(colour):
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(colour, eye="normal"):
    simulated = np.clip(EYES[eye] @ linear(colour), 0, 1)
    t = (TO_XYZ @ simulated) / TO_XYZ.sum(axis=1)
    f = np.where(t > 216 / 24389, np.cbrt(t), (t * 24389 / 27 + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(a, b, eye):
    return float(np.linalg.norm(lab(a, eye) - lab(b, eye)))


def contrast(a, b):
    dark, light = sorted(float(linear(colour) @ TO_XYZ[1]) for colour in (a, b))
    return (light + 0.05) / (dark + 0.05)


def closest_pair(palette, names, distance):
    """Returns (distance, name, name) of the pair with the smallest difference."""
    return min((distance(palette[a], palette[b]), a, b) for a, b in combinations(names, 2))


def test_colour_measures_on_known_values():
    assert lab("#ffffff") == pytest.approx([100, 0, 0], abs=1e-9)
    assert lab("#ff0000") == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    # a grey is grey to every eye; some red and green that differ for normal eyes are close for colour-blind ones
    assert all(difference("#808080", "#808080", eye) == 0 for eye in EYES)
    assert lab("#808080", "protanopia") == pytest.approx(lab("#808080"), abs=0.01)
    assert difference("#aa5500", "#558000", "deuteranopia") < 0.5 * difference("#aa5500", "#558000", "normal")


def test_both_themes_have_the_same_tokens():
    assert LIGHT.keys() == DARK.keys()


@themes
@eyes
def test_grounds_differ(palette, eye):
    pair = closest_pair(palette, GROUNDS, lambda a, b: difference(a, b, eye))
    assert pair[0] >= MIN_GROUND_DIFFERENCE, pair


@themes
def test_grounds_differ_in_grey(palette):
    pair = closest_pair(palette, GROUNDS, lambda a, b: abs(lab(a)[0] - lab(b)[0]))
    assert pair[0] >= MIN_GROUND_DIFFERENCE_GREY, pair


@themes
@pytest.mark.parametrize("ground", GROUNDS)
def test_text_is_readable_on_every_ground(palette, ground):
    assert contrast(palette["ink"], palette[ground]) >= 7
    for name in ("dim", *ROLES):
        assert contrast(palette[name], palette[ground]) >= 4.5, name


def mixed(a, b, part):
    """Returns the colour "#rrggbb" of which `part` is b and the rest a, as CSS's color-mix in srgb."""
    pairs = ((int(a[i : i + 2], 16), int(b[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(x + (y - x) * part):02x}" for x, y in pairs)


@themes
def test_code_is_readable_on_every_line(palette):
    """The running line, a line under the pointer and all others, with the colours of stage.css."""
    css = (HERE / "stage.css").read_text("utf-8")

    def percent(pattern):
        return int(re.search(pattern, css).group(1)) / 100

    ink = percent(r"\.lit \[class\^=\"c-\"\] { color: color-mix\(in srgb, var\(--c\), var\(--ink\) (\d+)%")
    lit = percent(r"\.code-line\.lit { background: color-mix\(in srgb, var\(--filter\) (\d+)%, var\(--ground\)")
    hover = percent(r"\.runs:hover { background: color-mix\(in srgb, var\(--line\) (\d+)%, var\(--ground\)")
    kinds = dict(re.findall(r"\.c-(\w+) { --c: var\(--(\w+)\)", css))
    assert len(kinds) == 6
    for kind, token in kinds.items():
        on_lit = contrast(mixed(palette[token], palette["ink"], ink), mixed(palette["ground"], palette["filter"], lit))
        on_hover = contrast(palette[token], mixed(palette["ground"], palette["line"], hover))
        assert min(on_lit, on_hover, contrast(palette[token], palette["panel"])) >= 4.5, kind


@themes
@pytest.mark.parametrize("ground", GROUNDS[1:])
def test_tints_have_less_chroma_than_any_role(palette, ground):
    def chroma(token):
        return float(np.hypot(*lab(palette[token])[1:]))

    assert chroma(ground) <= 0.4 * min(map(chroma, ROLES))


@themes
@eyes
def test_roles_differ(palette, eye):
    pair = closest_pair(palette, ROLES, lambda a, b: difference(a, b, eye))
    assert pair[0] >= MIN_ROLE_DIFFERENCE, pair


@themes
@eyes
def test_read_and_write_outlines_differ(palette, eye):
    assert difference(palette["read"], palette["write"], eye) >= MIN_OUTLINE_DIFFERENCE
