"""The app with the translations of tests/helpers/locale/, for browser tests."""

from pathlib import Path

import streamlit as st

from kernels import i18n

i18n.FOLDER = Path(__file__).parent / "locale"

from visuals.stage.routes import routes  # noqa: E402 - the folder comes first

app = st.App(Path(__file__).parents[2] / "pages" / "_shell.py", routes=routes())
