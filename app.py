"""The app: `streamlit run app.py`, or any ASGI server on `app:app`."""

import sys
from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from visuals.stage.front import ServerNamed
from visuals.stage.routes import routes

# What a page says is sent by one thread, which the threads that run pages make wait so long for each of a hundred
# messages: with the usual 5 ms a lecture hall waits several times as long.
sys.setswitchinterval(0.0005)

PAGES = sorted(page.stem for page in Path(__file__).parent.glob("pages/[a-z]*.py"))
app = st.App(
    "pages/_shell.py",
    routes=routes(st.get_option("server.baseUrlPath")),
    middleware=[Middleware(ServerNamed, pages=PAGES)],
)
