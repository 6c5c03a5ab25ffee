"""The app: `streamlit run app.py`, or any ASGI server on `app:app`."""

import streamlit as st
from starlette.middleware import Middleware

from pages import _watch, streamlit_patches
from pages._lessons import LESSONS
from visuals.stage import player_file
from visuals.stage.front import ServerAddressMiddleware
from visuals.stage.routes import routes

BASE = st.get_option("server.baseUrlPath")

app = st.App(
    "pages/_shell.py",
    routes=[*routes(BASE), *_watch.routes(BASE)],
    middleware=[
        *streamlit_patches.apply(),
        Middleware(
            ServerAddressMiddleware,
            pages=["home", "history", "glossary", *(lesson.path for lesson in LESSONS)],
            module=f"stage/{player_file()}",
        ),
    ],
)
