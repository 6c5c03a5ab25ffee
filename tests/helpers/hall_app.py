"""An app for tests of a hall: a page, and a route that says which process answers."""

import os
from pathlib import Path

import streamlit as st
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def who(request):
    return PlainTextResponse(
        f"{os.environ['KERNEL_THEATRE_APP']} {os.getpid()} {request.headers.get('x-forwarded-proto')}"
    )


app = st.App(
    Path(__file__).parents[2] / "benchmarks" / "bare.py",
    routes=[Route("/who", who), Route("/stage/watch/{token}", who)],
)
