"""The player's modules joined into one: they contain nothing that joining or minifying breaks."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from itertools import chain

import pytest

from tests.helpers.offenders import every
from visuals import stage
from visuals.stage.standalone import takeaway

MODULES = sorted(stage.HERE.glob("*.js"))
# Bytes of the player; lower it when the player shrinks. Translation takes 4,000 of them, diagrams 13,000, the key of colours
# under the picture 800, keeping what is the same in a chapter's panel 200, marks of faults on the scrubber 340.
LIMIT = 111_800
LOADER_LIMIT = 2_100  # bytes of what is sent with each rerun

# Declarations at the left margin, which all joined modules share.
_TOP = re.compile(
    r"^(?:export )?(?:default )?(?:async )?(?:(?:function\*?|class) (\w+)|(?:const|let|var) (.+))", re.MULTILINE
)
_PARTS = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|\\.|[`{}]|\$\{"
    r"|(?<=[=(,:?!&|\[])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/",  # a pattern, not a division
    re.DOTALL,
)


def nested(code: str) -> list[int]:
    """Returns the lines on which a template begins within a template."""
    found, at = [], 0
    open_ = []  # "`" for a template, "$" for a substitution in it, "{" for a block there
    while at < len(code):
        if open_ and open_[-1] == "`":
            piece = re.compile(r"\\.|`|\$\{|[^\\`$]+|\$", re.DOTALL).match(code, at)
        else:
            piece = _PARTS.search(code, at)
        if piece is None:
            break
        at, token = piece.end(), piece.group()
        if token == "`":
            if open_ and open_[-1] == "`":
                open_.pop()
                continue
            if "`" in open_:
                found.append(code.count("\n", 0, at) + 1)
            open_.append("`")
        elif token == "${" and open_ and open_[-1] == "`":
            open_.append("$")
        elif token in ("{", "}") and open_ and open_[-1] != "`":
            open_.append("{") if token == "{" else open_.pop()
    assert not open_
    return found


def declared(code: str) -> list[str]:
    """Returns the names that a module declares at its top level."""
    names = []
    for name, several in _TOP.findall(code):
        if name:
            names.append(name)
        elif several.startswith(("{", "[")):
            names += re.findall(r"\w+(?=\s*[,}\]])", several.split("=")[0])
        else:
            flat = several
            while (inner := re.sub(r"\([^()]*\)|\[[^][]*\]|\{[^{}]*\}|\"[^\"]*\"|`[^`]*`", "", flat)) != flat:
                flat = inner
            names += re.findall(r"(?:^|, )(\w+)(?= =|$|,|;)", flat)
    return names


def test_modules_have_nothing_that_joining_breaks():
    """No template within a template; no line break within one; no code as minified, which these modules write with spaces."""
    for module in MODULES:
        code = module.read_text("utf-8")
        assert nested(code) == [], module.name
        assert [line for line in code.splitlines() if line.count("`") % 2] == [], module.name
        assert [line for line in code.splitlines() if re.search(r";\}|,[]})]|\(\w+\)=>", line)] == [], module.name


@every(
    ("code", "lines"),
    [
        ("`a ${f(`b`)} c`", [1]),
        ("\n`${x ? `y` : ''}`", [2]),
        ("`${{ a: { b: `c` } }.a}`", [1]),
        ("`${a}`; `${b}`", []),
        ("// it's `here\nconst a = `${b}`; /* `${`*/", []),
        ("const a = '`', b = \"`${\", c = /[`/]`/;", []),
        (r"`\` ${a} \${`", []),
        ("const f = () => { return `${a}` + { b: `c` }; };", []),
    ],
)
def test_nested_finds_templates_within_templates(code, lines):
    assert nested(code) == lines


@pytest.mark.parametrize("names", [stage.SCRIPTS, stage.DOWNLOADS], ids=["player", "takeaway"])
def test_no_two_modules_declare_one_name(names):
    found = Counter(chain(*(declared((stage.HERE / f"{name}.js").read_text("utf-8")) for name in names)))
    assert len(found) > 20
    assert [name for name, times in found.items() if times > 1] == []


def test_declared_finds_declarations():
    code = (
        "export const a = 1, b = (x, y) => x;\nlet c;\nasync function d() {\n  const inner = 1;\n}\n"
        "export class E {\n}\nconst { f, g: h } = i;\nexport default function k() {}\nconst l = [1, 2], m = { n: o, p };\n"
    )
    assert declared(code) == ["a", "b", "c", "d", "E", "f", "h", "k", "l", "m"]


def test_joined_code_is_a_valid_module(node, tmp_path):
    """Node parses it: no broken code, no double declaration, and no import left."""
    for code in (takeaway(), stage.player(), stage.loader()):
        assert not re.search(r"^import\b", code, re.MULTILINE)
        file = tmp_path / "joined.mjs"
        file.write_text(code, "utf-8")
        process = subprocess.run([node, "--check", file], capture_output=True, text=True)
        assert process.returncode == 0, process.stderr


def test_the_player_is_within_its_size_limit():
    assert len(stage.script().encode()) <= LIMIT


def test_what_each_rerun_sends_again_is_small():
    """Streamlit sends the code of a component with each of its elements; the player is loaded by its URL."""
    assert len(stage.loader().encode()) <= LOADER_LIMIT
    assert f'"stage/{stage.player_file()}"' in stage.loader()
    assert stage.PLAYER_PLACEHOLDER not in stage.loader()


def test_every_module_is_sent_after_its_imports():
    assert {module.stem for module in MODULES} == {*stage.SCRIPTS, *stage.DOWNLOADS, stage.LOADER}
    for order in (stage.SCRIPTS, stage.DOWNLOADS):
        for n, name in enumerate(order):
            text = (stage.HERE / f"{name}.js").read_text("utf-8")
            assert set(re.findall(r'from "\./(\w+)\.js"', text)) <= set(order[:n])
