"""Where this user's measurements and recordings are, and the recordings shipped with the app."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "KERNEL_THEATRE_DATA"  # environment variable: a folder instead of the default one
STORE = "KERNEL_THEATRE_STORE"  # environment variable: the URL of a PostgreSQL database instead of the file
NAME = "kernel-theatre"
FILE = "measurements.sqlite"
RECORDINGS = "recordings"
SHIPPED = Path(__file__).parent / RECORDINGS  # with the app


def folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Returns the platform's folder for data: XDG, Application Support or Local AppData."""
    if given := environ.get(VARIABLE):
        return Path(given)
    if platform == "win32":
        local = environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / NAME
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support" / NAME
    data_home = environ.get("XDG_DATA_HOME", "")  # XDG: ignore a path that is not absolute
    return (Path(data_home) if data_home.startswith("/") else Path.home() / ".local" / "share") / NAME


def file() -> Path:
    return folder() / FILE


def database() -> str:
    """Returns the URL of the database of measurements; "" if they are in the file."""
    return os.environ.get(STORE, "")


def shown(url: str) -> str:
    """Returns the host and the name of a database by its URL, without user, password and options."""
    return re.sub(r"^.*//(.*@)?", "", url).partition("?")[0]


def own_recordings() -> Path:
    """Returns the folder of the recordings that this user made."""
    return folder() / RECORDINGS
