"""The app: `streamlit run app.py`, or any ASGI server on `app:app`."""

import gc
import sys

import streamlit as st
from starlette.middleware import Middleware

from pages._cheaper_streamlit import make_cheaper
from pages._lessons import LESSONS
from pages._stale_fragments import StaleFragmentMiddleware
from pages._unsent_messages import keep_unsent_messages
from pages._watch import WatchMiddleware
from visuals.stage import player_file
from visuals.stage.front import ServerAddressMiddleware
from visuals.stage.routes import routes

# One thread sends the about one hundred messages of each page. For every message the threads that run pages can delay
# it by this interval. At Python's default of 5 ms a lecture hall waits several times as long.
sys.setswitchinterval(0.0005)
# A run of a page makes thousands of objects and few cycles. At Python's default of 700 a collection was 3 ms of each run.
# At 50,000 a process stopped for 0.15 s after about 150 runs, and twenty readers waited.
gc.set_threshold(10_000, 50, 20)

keep_unsent_messages()
make_cheaper()
BASE = st.get_option("server.baseUrlPath")

app = st.App(
    "pages/_shell.py",
    routes=routes(BASE),
    middleware=[
        Middleware(WatchMiddleware, base=BASE),
        Middleware(StaleFragmentMiddleware),
        Middleware(
            ServerAddressMiddleware,
            pages=["home", "history", "glossary", *(lesson.path for lesson in LESSONS)],
            module=f"stage/{player_file()}",
        ),
    ],
)
