"""Python in a browser: the same pages from the packed code alone, without Streamlit, Plotly, Numba or Pillow."""

import json
import os
import shutil
import subprocess
import sys
from zipfile import ZipFile

import pytest

from visuals.site import python
from visuals.site.crawl import walk

CODE = """
import json, os, sys
for missing in ('streamlit', 'plotly', 'numba', 'PIL', 'cupy', 'starlette', 'anyio', 'psutil', 'playwright', 'multiprocessing.connection', '_multiprocessing'):
    sys.modules[missing] = None  # as where it is not installed
from visuals.site.browser import Recorder
one = Recorder()
answers = [json.loads(one.record(path, json.dumps(params))) for path, params in json.loads(sys.argv[1])]
names = {name: module.__file__ for name, module in sys.modules.items() if name.partition('.')[0] in ('kernels', 'visuals', 'pages') and getattr(module, '__file__', None)}
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
    """Returns what Python in the browser answers for each (path, parameters)."""
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
    same, free, wrong, picture, product = record(
        app,
        ("softmax", {"view": "story", "chapter": "1"}),
        ("softmax", {"view": "explore", "M": "5", "N": "19"}),
        ("softmax", {"view": "explore", "M": "-5"}),
        ("im2col", {"view": "explore", "H": "7", "W": "5", "picture": "numbers"}),
        ("tiling", {"view": "explore", "M": "9", "N": "9", "K": "9", "rung": "naive"}),
    )
    recorded = site.json(site.index("softmax")["chapter=1"])
    assert stage(same["doc"]) == stage(recorded)
    assert stage(free["doc"])["scene"] in free["files"]
    assert "5 rows of 19" in json.dumps(stage(free["doc"])["strip"])
    assert "M must be 1 to" in json.dumps(wrong["doc"])
    for other in (picture, product):
        assert stage(other["doc"])["scene"] in other["files"], other


def test_what_a_folder_lacks_is_named(tmp_path):
    for name in python.RUNTIME:
        (tmp_path / name).touch()
    with pytest.raises(python.PyodideError, match="lacks NumPy"):
        python.wheel(tmp_path)
    (tmp_path / "numpy-2.4.3-cp314-cp314-pyemscripten_2026_0_wasm32.whl").touch()
    assert python.wheel(tmp_path).name.startswith("numpy-2.4.3")
    (tmp_path / "pyodide.asm.wasm").unlink()
    with pytest.raises(python.PyodideError, match=r"lacks pyodide\.asm\.wasm"):
        python.wheel(tmp_path)


def test_archive_is_the_same_for_the_same_code():
    assert python.archive() == python.archive()
