"""The static site: what a build writes, that every link resolves, and that a second build records nothing again."""

import json
import re
import subprocess

import pytest

from pages._lessons import LESSONS
from pages.parts import address
from tests.helpers.harness import ROOT
from tests.helpers.offenders import every
from tests.helpers.site import OPTIONS, PAGES, build
from visuals.site import crawl
from visuals.site.files import Files, name_of
from visuals.site.write import MAX_BYTES, SCRIPTS, bundle

pytestmark = pytest.mark.timeout(900)  # a build takes some seconds of a processor that other tests use too


# -- addresses -------------------------------------------------------------------------------------
KEYS = [
    ({}, "chapter=1"),
    ({"lang": "fr"}, "chapter=1"),
    ({"view": "story", "chapter": "3", "present": "1"}, "chapter=3"),
    ({"chapter": "2", "step": "7", "pin": "y:0"}, "chapter=2"),
    ({"chapter": "2", "rung": "naive"}, "chapter=2&rung=naive"),
    ({"present": "1"}, "explore"),
    ({"step": "5"}, "explore"),
    ({"view": "watch", "embed": "true"}, "explore"),
    ({"rung": "naive", "M": "8", "engine": "cpu"}, "explore&M=8&rung=naive"),
    ({"view": "explore", "logits": "a b,c"}, "explore&logits=a+b%2Cc"),
    ({"view": "explore", "chapter": "3"}, "explore"),
]


@every(("params", "key"), KEYS)
def test_key_of_an_address(params, key):
    assert crawl.key_of(params) == key
    assert crawl.is_story(params) == address.opens_story(params)


def test_the_browser_makes_the_same_keys(node):
    """site.js finds an address by the key that the build gave it."""
    code = (
        f"import {{ keyOf }} from '{(ROOT / 'visuals/site/web/address.js').as_uri()}';"
        f"console.log(JSON.stringify({json.dumps([params for params, _ in KEYS])}.map((params) => keyOf(params))))"
    )
    done = subprocess.run([node, "--input-type=module", "-e", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [key for _, key in KEYS]


def test_an_address_that_the_site_lacks_leads_to_the_one_that_differs_least(node):
    code = (
        f"import {{ nearestKey }} from '{(ROOT / 'visuals/site/web/address.js').as_uri()}';"
        "const has = (key) => ['explore', 'explore&M=8', 'explore&M=8&rung=naive', 'chapter=1'].includes(key);"
        "const lacking = ['explore&M=8&rung=naive&tile=8', 'explore&M=8&N=9', 'chapter=9'];"
        "console.log(JSON.stringify(lacking.map((key) => nearestKey(key, has))))"
    )
    done = subprocess.run([node, "--input-type=module", "-e", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["explore&M=8&rung=naive", "explore&M=8", "explore"]


@pytest.mark.parametrize(("shown", "others"), [(False, {"steps": "all"}), (True, {})])
def test_the_choice_of_the_steps_leads_to_the_other_one(shown, others):
    stage = {"t": "component", "name": "stage", "data": {"head": {"every": {"all": shown}}}}
    assert [*crawl.choices({"view": "explore"}, [stage])] == [{"view": "explore"} | others]


def test_a_page_without_chapters_has_one_key():
    assert crawl.key_of({}, has_story=False) == crawl.key_of({"view": "story"}, has_story=False) == "explore"


# -- files -----------------------------------------------------------------------------------------
def test_files_are_named_by_their_content_and_written_once(tmp_path):
    files = Files(tmp_path)
    name = files.put("a scene")
    path = files.folder / f"{name}.bin"
    before = path.stat().st_mtime_ns
    assert Files(tmp_path).put(b"a scene") == name == name_of(b"a scene")
    assert path.stat().st_mtime_ns == before
    assert [file.name for file in files.folder.iterdir()] == [path.name], "no file that is cut off stays"


def test_scripts_share_no_name(node):
    """They are joined into one module, where a second declaration of a name is an error."""
    done = subprocess.run([node, "--input-type=module", "--check"], input=bundle(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "import " not in re.sub(r"import\(", "", bundle()), f"an import of {SCRIPTS} is left"


# -- a build ---------------------------------------------------------------------------------------
def test_every_chapter_has_its_stage_text_and_strip(site):
    index = site.index("softmax")
    chapters = [key for key in index if key.startswith("chapter=")]
    assert len(chapters) > 5
    for key in chapters:
        stage = next(one for one in crawl.walk(site.page("softmax", key)) if one.get("scene"))
        chapter = stage["head"]["chapter"]
        assert chapter["number"] == int(key.partition("=")[2]) - 1 and chapter["text"]
        assert stage["strip"]["sizes"][0]["time"]
        scene = site.bytes(stage["scene"])
        meta = json.loads(scene[4 : 4 + int.from_bytes(scene[:4], "little")])
        assert meta["key"], "the scene is one that the player reads"


def test_explore_has_controls_cards_charts_and_listings(site):
    found = list(crawl.walk(site.page("softmax", "explore")))
    kinds = {one["t"] for one in found}
    assert {"link", "select", "number", "pop", "chart", "tabs", "code", "html"} <= kinds
    code = site.json(next(one for one in found if one["t"] == "code")["ref"])
    assert "__global__" in code["text"]
    charts = [site.json(one["ref"]) for one in found if one["t"] == "chart"]
    assert all(chart["data"] and "template" not in chart["layout"] for chart in charts)
    assert not [one for one in found if one.get("k") == "engine"], "nothing is measured on the site"


def test_every_link_resolves_on_site_and_app(site):
    """A link that the site has must be an address of the site, and one that the app takes without a correction."""
    pages, indexes = site.config("")["pages"], {path: site.index(path) for path in site.config("")["pages"]}
    paths = {lesson.path for lesson in LESSONS} | {"", "history", "glossary"}
    checked = 0
    for path, index in indexes.items():
        for key in index:
            for to, params in crawl.leads(site.page(path, key)):
                assert to in paths, f"{path}?{key} leads to {to}, which is no page of the app"
                if to not in pages or to == path:  # within a page the nearest recorded address is shown
                    continue
                own = indexes[to]
                found = crawl.key_of(params, any(one.startswith("chapter=") for one in own))
                assert found in own, f"{path}?{key} leads to {to}?{found}, which the site lacks"
                shown = site.json(own[found])["params"]
                assert {n: v for n, v in params.items() if n not in crawl.MOMENT}.items() <= shown.items(), (
                    f"the app corrects the address {to}?{params}"
                )
                checked += 1
    assert checked > 50


def test_every_file_that_is_named_exists_and_the_site_is_small(site):
    config = site.config("")
    names = {config["core"], config["search"], config["plotly"]} | {one["index"] for one in config["pages"].values()}
    for path in config["pages"]:
        for name in site.index(path).values():
            names |= {name, *re.findall(r'"(?:ref|scene)":"([0-9a-f]{16})"', site.bytes(name).decode())}
    assert all((site.out / "files" / f"{name}.bin").exists() for name in names)
    files = [file for file in site.out.rglob("*") if file.is_file() and ".build" not in file.parts]
    assert sum(file.stat().st_size for file in files) < MAX_BYTES / 5


def test_no_page_asks_another_server_or_names_the_machine(site):
    for file in [*site.out.glob("*.html"), *site.out.glob("site-*")]:
        text = file.read_text("utf-8")
        assert not re.search(r"(?:src|href)=[\"']https?:", text), file
        assert str(ROOT) not in text


def test_second_build_records_nothing_again(site):
    before = {file.name: file.stat().st_mtime_ns for file in (site.out / "files").iterdir()}
    printed = build(site.out, *OPTIONS)
    assert printed.count("unchanged") == len(PAGES) + 1 and "recorded" not in printed
    assert {file.name: file.stat().st_mtime_ns for file in (site.out / "files").iterdir()} == before


def test_search_finds_chapters_and_terms(site, node):
    code = (
        f"import {{ search, excerpt }} from '{(ROOT / 'visuals/site/web/search.js').as_uri()}';"
        f"const found = search({json.dumps(site.json(site.config('')['search']))}, 'warp 32');"
        "console.log(JSON.stringify(found.map(([address, , text]) => [address, excerpt(text, 'warp 32')])))"
    )
    code = f"globalThis.document = {{ addEventListener() {{}} }}; {code.replace('import {', 'const {', 1).replace('} from ', '} = await import(', 1).replace(';', ');', 1)}"
    done = subprocess.run([node, "--input-type=module", "-e", code], capture_output=True, text=True, check=True)
    found = dict(json.loads(done.stdout))
    assert "warp" in found["glossary?view=explore"].lower() or any("warp" in text.lower() for text in found.values())
