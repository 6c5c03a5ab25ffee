"""python -m tests.helpers.wheels FOLDER [PYTHON]: download the wheels that page tests need on a GPU machine offline.

The machine has Python (3.12 unless PYTHON is another version), CUDA, CuPy, PyTorch, pytest and their dependencies,
including pandas, pyarrow and pillow, but not Streamlit. The wheels have the versions installed in this environment from
requirements.txt. Install them there with

    pip install --no-index --no-deps --target SITE FOLDER/*.whl

With SITE on PYTHONPATH `pytest -m gpu` then runs the tests of pages too.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

STREAMLIT = "streamlit altair starlette uvicorn websockets python-multipart itsdangerous"
SCHEMA = "jsonschema jsonschema-specifications referencing rpds-py"  # altair's
NAMES = f"{STREAMLIT} {SCHEMA} plotly rjsmin".split()
GLIBC = (5, 12, 17, 24, 27, 28, 31, 34)  # 2.N: pip takes each platform by its exact name
MACHINE = "x86_64"


def command(folder: Path, python: str) -> list[str]:
    """Returns the pip command that downloads each wheel at the version installed here."""
    platforms = (f"--platform=manylinux_2_{n}_{MACHINE}" for n in GLIBC)
    old_platforms = (f"--platform={name}_{MACHINE}" for name in ("manylinux1", "manylinux2010", "manylinux2014"))
    options = "--no-deps --only-binary=:all: --implementation=cp --quiet --disable-pip-version-check".split()
    pinned = (f"{name}=={version(name)}" for name in NAMES)
    return [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        f"--python-version={python}",
        *platforms,
        *old_platforms,
        "--dest",
        str(folder),
        *pinned,
    ]


def main(folder: str, python: str = "3.12") -> None:
    subprocess.run(command(Path(folder), python), check=True)
    wheels = sorted(Path(folder).glob("*.whl"))
    print(f"{len(wheels)} wheels, {sum(wheel.stat().st_size for wheel in wheels) / 1e6:.1f} MB in {folder}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
