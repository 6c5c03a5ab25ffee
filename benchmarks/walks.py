"""Random walks of readers through the app in Chromium: python -m benchmarks.walks [--seed 1] [--minutes 6] [--readers 2]

Each reader has a window, and makes bursts of up to four acts without waiting for the app: number fields, select boxes,
links to kernels and presets, other lessons, Explore and story, presses on the stage, Back and Forward. After a burst the
walk waits until nothing changes any more. Then the following must hold:

* No exception, no error on the console.
* The last value that the reader gave to each control is shown, unless a later act replaced it or the page names a rule that
  the value breaks. The last link that was followed is in the URL, unless something was pressed on the page that it left.
* A new window at the same URL shows the same: title, controls, stage, step and caption.

Prints each act that was lost, and ends with 1 if there was one. The same seed gives the same choices, but the times at
which answers come differ.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from playwright.sync_api import Browser, Error, Locator, Page

from benchmarks.browser import chromium, new_page
from tests.helpers.browser import MISSING_PATHS
from tests.helpers.harness import serving

MAX_ACTS = 4  # of a burst
ACT_MS = 1000  # for an act to find its control: the page may be drawn anew meanwhile
STILL_MS = 600  # without a change: the pages' own timers run every 250 and 500 ms
PATIENCE_S = 60.0
STARTS = ("im2col", "tiling", "softmax", "attention", "layers", "precision", "winograd", "direct", "threads", "fusion")
OWN = ("step", "loop", "pin", "slice", "frame", "zoom", "at")  # parameters that the player writes

# What a reader sees, as far as it follows from the URL.
SEEN = """() => {
  const text = node => (node?.innerText ?? "").replace(/expand_(more|less)/, "").trim();
  const shown = node => node.offsetParent !== null;
  const key = node => [...node.closest("[class*=st-key-]").classList].find(name => name.startsWith("st-key-")).slice(7);
  const controls = [...document.querySelectorAll(".st-key-controls :is(.stNumberInput, .stSelectbox) input")].filter(shown);
  const stage = document.querySelector(".stage") ??
    [...document.querySelectorAll("*")].map(node => node.shadowRoot?.querySelector(".stage")).find(Boolean);
  const part = name => text(stage?.querySelector(`[data-part=${name}]`));
  const loading = document.querySelector("[data-testid=stSkeleton]") !== null;
  return {
    state: loading ? "loading" : document.querySelector("[data-testid=stApp]")?.dataset.testScriptState,
    url: location.pathname + location.search,
    title: text(document.querySelector("h1")),
    controls: Object.fromEntries(controls.map(input => [key(input), input.value])),
    labels: [...document.querySelectorAll(".st-key-controls [data-testid=stPopoverButton]")].filter(shown).map(text),
    notes: [...document.querySelectorAll(".kt-note")].map(text).join(" "),
    scene: stage?.dataset.scene ?? "",
    ready: stage ? stage.dataset.ready === "true" : location.pathname.endsWith("/choose"),
    step: stage?.dataset.step ?? "",
    caption: part("caption"),
    chapter: text(stage?.querySelector(".chapter h2")),
    wrong: [...document.querySelectorAll("[data-testid=stException], [data-testid=stErrorElement]")].map(text),
  };
}"""
# Whether the page that is shown is that of the URL. What is pressed on a page that was just left by Back, Streamlit sends for
# the page that was left, and the URL stays that of the other one.
IS_HERE = """() => document.querySelector(".st-key-nav a em")?.closest("a").pathname === location.pathname"""
SAME = ("title", "controls", "labels", "scene", "step", "caption", "chapter")


@dataclass
class Burst:
    """What a reader did without waiting, and what must hold then."""

    acts: list[str] = field(default_factory=list)
    controls: dict[str, str] = field(default_factory=dict)  # the values that were given last
    params: dict[str, str | None] = field(default_factory=dict)  # of the URL; None: not there
    path: str = ""
    story: bool | None = None  # which mode the last link to one leads to

    def leaves(self, path: str = "") -> None:
        """Notes that a link or Back replaces what was given before."""
        self.controls, self.params, self.path, self.story = {}, {}, path, None


class Reader:
    """One window, and the choices of who uses it."""

    def __init__(self, number: int, browser: Browser, url: str, seed: int):
        self.number, self.url, self.random = number, url, random.Random(f"{seed} {number}")
        self.page, self.errors = _watched(browser)
        self.counts: Counter[str] = Counter()
        self.page.goto(f"{url}/{self.random.choice(STARTS)}{self.random.choice(('?view=explore', ''))}")
        settled(self.page)
        self.first = self.page.evaluate("navigation.currentEntry.index")

    def burst(self) -> Burst:
        done = Burst()
        for _ in range(self.random.randint(1, MAX_ACTS)):
            act = self.random.choices(ACTS, WEIGHTS)[0]
            if act not in (lesson, back, forward):
                if not self.page.evaluate(IS_HERE):
                    continue
                done.path = ""
            try:
                if text := act(self, done):
                    done.acts.append(text)
                    self.counts[act.__name__] += 1
            except Error as error:  # the page was drawn anew while the act looked for its control
                done.acts.append(f"{act.__name__}: no longer there ({str(error).splitlines()[0][:60]})")
                done.leaves()
            self.page.wait_for_timeout(self.random.choice((0, 0, 20, 60, 150, 400)))
        return done

    def one_of(self, found: Locator) -> Locator | None:
        """Returns one of the visible ones, None if there are none."""
        n = found.count()
        return found.nth(self.random.randrange(n)) if n else None


# -- acts: each returns what it did, "" if the page has nothing for it ------------------------------------
def number(reader: Reader, burst: Burst) -> str:
    """Turns a number field up and down quickly by its keys, or types into it."""
    input = reader.one_of(reader.page.locator(".st-key-controls .stNumberInput input:visible"))
    if input is None:
        return ""
    key = _key(input)
    if reader.random.random() < 0.7:
        presses = [
            reader.random.choice(("ArrowUp", "ArrowUp", "ArrowDown")) for _ in range(reader.random.randint(1, 4))
        ]
        input.focus(timeout=ACT_MS)
        for press in presses:
            reader.page.keyboard.press(press)
        text = " ".join(presses)
    else:
        low, high = (int(float(input.get_attribute(name, timeout=ACT_MS) or 1)) for name in ("min", "max"))
        text = str(min(max(low, reader.random.choice((1, 2, 3, 4, 6, 8, 9, 12, 16))), high))  # others are not sent
        input.fill(text, timeout=ACT_MS)
        input.press("Enter", timeout=ACT_MS)
    burst.controls[key] = value = input.input_value(timeout=ACT_MS)
    return f"{key} {text} = {value}"


def select(reader: Reader, burst: Burst) -> str:
    """Chooses in a select box by its keys."""
    input = reader.one_of(reader.page.locator(".st-key-controls .stSelectbox input:visible"))
    if input is None:
        return ""
    key = _key(input)
    input.click(timeout=ACT_MS)
    for _ in range(reader.random.randint(1, 3)):
        reader.page.keyboard.press(reader.random.choice(("ArrowDown", "ArrowUp")))
    reader.page.keyboard.press("Enter")
    burst.controls[key] = value = input.input_value(timeout=ACT_MS)
    return f"{key} = {value}"


def preset(reader: Reader, burst: Burst) -> str:
    return _in_popover(reader, burst, "presets")


def kernel(reader: Reader, burst: Burst) -> str:
    return _in_popover(reader, burst, "rung_chooser")


def _in_popover(reader: Reader, burst: Burst, key: str) -> str:
    """Opens a popover of links and follows one of them."""
    button = reader.page.locator(f".st-key-controls .st-key-{key} button:visible")
    if not button.count():
        return ""
    button.first.click(timeout=ACT_MS)
    body = reader.page.get_by_test_id("stPopoverBody")
    body.locator("a").first.wait_for(timeout=ACT_MS)
    link = reader.one_of(body.locator("a:visible"))
    assert link is not None
    text, href = link.inner_text(timeout=ACT_MS), link.get_attribute("href", timeout=ACT_MS)
    link.click(timeout=ACT_MS)
    reader.page.keyboard.press("Escape")
    given = dict(parse_qsl(urlsplit(href).query))
    if key == "rung_chooser":  # its link keeps what was given before, also what it does not know yet
        burst.params["rung"] = given.get("rung")
        tiles = {name for name in burst.controls if name.isupper() and len(name) > 1}
        burst.controls = {name: value for name, value in burst.controls.items() if name not in tiles}
    else:
        burst.controls = {}
        burst.params |= {name: value for name, value in given.items() if name in ("M", "N", "C", "H", "W", "K", "d")}
    return f"{key}: {text}"


def lesson(reader: Reader, burst: Burst) -> str:
    """Follows the link to another lesson."""
    link = reader.one_of(reader.page.locator(".st-key-nav_lessons a:visible"))
    if link is None:
        return ""
    href = link.get_attribute("href", timeout=ACT_MS)
    link.click(timeout=ACT_MS)
    burst.leaves(urlsplit(href).path.rpartition("/")[2])
    return f"lesson {href}"


def mode(reader: Reader, burst: Burst) -> str:
    """Switches between Explore and story."""
    link = reader.one_of(reader.page.locator(".st-key-modes a:visible"))
    if link is None:
        return ""
    text = link.inner_text(timeout=ACT_MS)
    link.click(timeout=ACT_MS)
    burst.leaves()
    burst.story = text == "Story"
    return text


def chapter(reader: Reader, burst: Burst) -> str:
    """Turns to the next chapter or back."""
    button = reader.one_of(reader.page.locator(".stage .chapter button:visible", has_text="Next:"))
    if button is None:
        return ""
    text = button.inner_text(timeout=ACT_MS)
    button.click(timeout=ACT_MS)
    burst.leaves()
    return text


def order(reader: Reader, burst: Burst) -> str:
    """Chooses the order in which the stage plays."""
    opener = reader.page.locator(".stage [data-do=order]:visible")
    if not opener.count():
        return ""
    opener.first.click(timeout=ACT_MS)
    choice = reader.one_of(reader.page.locator(".stage [role=menuitemradio]:visible, .stage .menu button:visible"))
    if choice is None:
        reader.page.keyboard.press("Escape")
        return ""
    text = choice.inner_text(timeout=ACT_MS)
    choice.click(timeout=ACT_MS)
    return f"order {text}"


def step(reader: Reader, burst: Burst) -> str:
    """Steps the stage, which writes to the URL by itself."""
    button = reader.page.locator(".stage [data-do=forward]:visible")
    if not button.count():
        return ""
    for _ in range(reader.random.randint(1, 3)):
        button.first.click(timeout=ACT_MS)
    return "step"


def back(reader: Reader, burst: Burst) -> str:
    if reader.page.evaluate("navigation.currentEntry.index") <= reader.first:
        return ""  # before it is another document
    reader.page.evaluate("history.back()")
    burst.leaves()
    return "Back"


def forward(reader: Reader, burst: Burst) -> str:
    reader.page.evaluate("history.forward()")
    burst.leaves()
    return "Forward"


ACTS = (number, select, preset, kernel, lesson, mode, chapter, order, step, back, forward)
WEIGHTS = (14, 4, 3, 4, 2, 2, 4, 2, 2, 4, 2)


def _key(input: Locator) -> str:
    """Returns the parameter of a control."""
    return input.evaluate(
        "input => [...input.closest('[class*=st-key-]').classList].find(name => name.startsWith('st-key-')).slice(7)",
        timeout=ACT_MS,
    )


# -- what must hold ---------------------------------------------------------------------------------------
def settled(page: Page) -> dict[str, Any]:
    """Returns what a page shows once it has not changed for STILL_MS and no run is under way."""
    end = time.monotonic() + PATIENCE_S
    before, since = None, time.monotonic()
    while time.monotonic() < end:
        try:
            now = page.evaluate(SEEN)
        except Error:  # the window loads another document
            now = None
        whole = now is not None and now["state"] == "notRunning" and (now["ready"] or now["wrong"])
        if now != before or not whole:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > STILL_MS / 1e3:
            return now
        page.wait_for_timeout(50)
    return now | {"wrong": [f"not settled after {PATIENCE_S:.0f} s"]}


def faults(reader: Reader, burst: Burst, seen: dict[str, Any], fresh: dict[str, Any]) -> list[str]:
    """Returns what is wrong with what a reader sees after a burst. `fresh`: what a new window at the same URL shows."""
    url, params = urlsplit(seen["url"]), dict(parse_qsl(urlsplit(seen["url"]).query))
    found = [*reader.errors, *(f"exception: {text}" for text in seen["wrong"])]
    reader.errors.clear()
    found += [f"{name}: {seen[name]!r}, in a new window {fresh[name]!r}" for name in SAME if seen[name] != fresh[name]]
    if burst.path and url.path.rpartition("/")[2] != burst.path:
        found.append(f"the link to {burst.path} was lost: {url.path}")
    if burst.story is not None and bool(seen["chapter"]) != burst.story:
        found.append(f"the link to {'the story' if burst.story else 'Explore'} was lost: {seen['url']}")
    if seen["notes"]:
        return found  # a value that breaks a rule is not kept
    for name, value in burst.params.items():
        if params.get(name) != value:
            found.append(f"{name}={value} of the link was lost: {seen['url']}")
    for name, value in burst.controls.items():
        if name in seen["controls"] and seen["controls"][name] != value:
            found.append(f"{name} = {value} was lost: {seen['controls'][name]} at {seen['url']}")
    return found


def _watched(browser: Browser) -> tuple[Page, list[str]]:
    """Returns a page, and the list that gets its errors."""
    page, errors = new_page(browser), []

    def console(message: Any) -> None:
        missing = urlsplit(message.location.get("url", "")).path.endswith(MISSING_PATHS)
        if message.type == "error" and not missing:
            errors.append(f"console: {message.text[:200]}")

    page.on("pageerror", lambda error: errors.append(f"exception: {error}"))
    page.on("console", console)
    return page, errors


def walk(url: str, browser: Browser, seed: int, minutes: float, n: int) -> tuple[int, Counter[str], int]:
    """Returns the number of bursts with a fault, how often each act was done, and the number of bursts."""
    readers = [Reader(k, browser, url, seed) for k in range(n)]
    other, _ = _watched(browser)
    lost, bursts, end = 0, 0, time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        done = [reader.burst() for reader in readers]
        for reader, burst in zip(readers, done, strict=True):
            seen = settled(reader.page)
            other.goto(f"{url}{seen['url']}")
            found = faults(reader, burst, seen, settled(other))
            bursts += 1
            if found:
                lost += 1
                print(
                    f"reader {reader.number}: {'; '.join(burst.acts)}, now at {seen['url']}",
                    *found,
                    sep="\n    ",
                    flush=True,
                )
    return lost, sum((reader.counts for reader in readers), Counter()), bursts


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--readers", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryFile("w+") as log, serving(log=log.fileno()) as app, chromium() as browser:
        lost, counts, bursts = walk(app.url, browser, args.seed, args.minutes, args.readers)
        log.seek(0)
        errors = log.read().partition("Traceback")
    if errors[1]:
        print("The first error of the server:", *errors[1:], sep="\n")
    acts = ", ".join(f"{name} {n}" for name, n in sorted(counts.items()))
    print(
        f"Seed {args.seed}, {args.minutes:g} minutes, {args.readers} readers: {bursts} bursts, {sum(counts.values())} acts ({acts}): {lost} with a fault"
    )
    return bool(lost or errors[1])


if __name__ == "__main__":
    sys.exit(main())
