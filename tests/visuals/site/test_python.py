"""Python in a browser: the same pages from the packed code alone, without Streamlit, Plotly, Numba or Pillow."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from zipfile import ZipFile

import pytest

from visuals.site import python
from visuals.site.crawl import walk

CODE = """
import json, os, sys
for missing in ('streamlit', 'plotly', 'numba', 'PIL', 'cupy', 'starlette', 'anyio', 'psutil', 'playwright', 'ml_dtypes', 'multiprocessing.connection', '_multiprocessing'):
    sys.modules[missing] = None  # as where it is not installed
from visuals.site.browser import Recorder
one = Recorder()
answers = [json.loads(one.record(path, json.dumps(params))) for path, params in json.loads(sys.argv[1])]
path, params = json.loads(sys.argv[1])[-1]
while json.loads(one.count())['counting']:
    pass
answers.append(json.loads(one.record(path, json.dumps(params))))
names = {name: module.__file__ for name, module in sys.modules.items() if name.partition('.')[0] in ('kernels', 'visuals', 'pages', 'pygments', 'elftools', 'rjsmin') and getattr(module, '__file__', None)}
print(json.dumps([answers, sorted(file for file in names.values() if not file.startswith(os.getcwd()))]))
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """Returns a folder with the packed code, as the worker unpacks it."""
    folder = tmp_path_factory.mktemp("app")
    packed = folder / "code.zip"
    packed.write_bytes(python.archive())
    with ZipFile(packed) as archive:
        archive.extractall(folder)
    for place, file in python.loaded_later().items():
        shutil.copy(file, folder / place)
    return folder


def record(app, *addresses):
    """Returns what Python in the browser answers for each (path, parameters), and for the last one when it is counted."""
    command = [sys.executable, "-c", CODE, json.dumps(addresses)]
    env = os.environ | {"PYTHONPATH": str(app), "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=app, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers, elsewhere = json.loads(done.stdout)
    assert elsewhere == [], "code that is not in the archive"
    assert not [answer["error"] for answer in answers if "error" in answer]
    return answers


def stage(doc):
    return next(one for one in walk(doc["c"]) if one.get("scene"))


@pytest.mark.timeout(900)
def test_same_scene_as_on_the_site_and_a_shape_of_ones_own(app, site):
    free, wrong, picture, product, same, counted = record(
        app,
        ("softmax", {"view": "explore", "M": "5", "N": "19"}),
        ("softmax", {"view": "explore", "M": "-5"}),
        ("im2col", {"view": "explore", "H": "7", "W": "5", "picture": "numbers"}),
        ("tiling", {"view": "explore", "M": "9", "N": "9", "K": "9", "rung": "naive"}),
        ("softmax", {"view": "story", "chapter": "1"}),
    )
    recorded = site.json(site.index("softmax")["chapter=1"])
    assert same["counting"] > 0 and counted["counting"] == 0
    assert stage(same["doc"])["scene"] == stage(recorded)["scene"]
    assert stage(counted["doc"]) == stage(recorded)
    assert stage(free["doc"])["scene"] in free["files"]
    assert "5 rows of 19" in json.dumps(stage(free["doc"])["strip"])
    assert "M must be 1 to" in json.dumps(wrong["doc"])
    for other in (picture, product):
        assert stage(other["doc"])["scene"] in other["files"], other
    assert product["counting"] > 0


def test_what_a_folder_lacks_is_named(tmp_path):
    """Pyodide's release. Until version 0.28 its loader was pyodide.asm.js."""
    for name in (*python.RUNTIME, "pyodide.asm.js"):
        (tmp_path / name).touch()
    with pytest.raises(python.PyodideError, match="lacks NumPy"):
        python.Pyodide(tmp_path)
    (tmp_path / "numpy-2.4.3-cp314-cp314-pyemscripten_2026_0_wasm32.whl").touch()
    assert "pyodide.asm.js" in python.Pyodide(tmp_path).files
    (tmp_path / "pyodide.asm.js").rename(tmp_path / "pyodide.asm.mjs")
    assert "pyodide.asm.mjs" in python.Pyodide(tmp_path).files
    (tmp_path / "pyodide.asm.wasm").unlink()
    with pytest.raises(python.PyodideError, match=r"lacks pyodide\.asm\.wasm"):
        python.Pyodide(tmp_path)


def test_numpy_of_a_release_and_of_npm(tmp_path):
    """Both give the same zip file, without NumPy's tests."""
    release, npm = tmp_path / "release", tmp_path / "node_modules"
    for folder in (release, npm / "pyodide"):
        folder.mkdir(parents=True)
        for name in (*python.RUNTIME, "pyodide.asm.mjs"):
            (folder / name).touch()
    content = {"numpy/__init__.py": b"1", "numpy/_core/a.so": b"2", "numpy/tests/b.py": b"3"}
    (release / "numpy-1-wasm32.whl").write_bytes(python.packed(content))
    archive = npm / python.NPM_NUMPY / "pkg" / "numpy-1-py312.tar.gz"
    with pytest.raises(python.PyodideError, match=r"lacks NumPy \(the npm package @emscripten-forge/numpy\)"):
        python.Pyodide(npm)
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as file:
        for name, data in content.items():
            info = tarfile.TarInfo(f"lib/python3.12/site-packages/{name}")
            info.size = len(data)
            file.addfile(info, BytesIO(data))
    found = python.Pyodide(npm).numpy()
    assert found == python.Pyodide(release).numpy()
    with ZipFile(BytesIO(found)) as files:
        assert files.namelist() == ["numpy/__init__.py", "numpy/_core/a.so"]


def test_archive_is_the_same_for_the_same_code(app):
    assert (app / "code.zip").read_bytes() == python.archive()
