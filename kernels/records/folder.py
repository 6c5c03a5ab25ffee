"""Where this user's measurements lie."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "KERNEL_THEATRE_DATA"  # a folder, instead of the usual one
NAME = "kernel-theatre"
FILE = "measurements.sqlite"


def folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """The folder for data as the platform has it: XDG, Application Support or Local AppData."""
    if given := environ.get(VARIABLE):
        return Path(given)
    if platform == "win32":
        local = environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / NAME
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support" / NAME
    told = environ.get("XDG_DATA_HOME", "")  # a path that is not absolute is to be ignored, says XDG
    return (Path(told) if told.startswith("/") else Path.home() / ".local" / "share") / NAME


def file() -> Path:
    return folder() / FILE
