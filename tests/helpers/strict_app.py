"""The app behind a Content-Security-Policy that allows no script but those of this server, as a strict host sends it."""

from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from visuals.stage.routes import routes

POLICY = (
    "default-src 'self'; script-src 'self' blob: 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src blob:; connect-src 'self'"
)


class PolicyMiddleware:
    """ASGI middleware that adds the policy to each response."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        async def with_policy(message):
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", POLICY.encode())]
            await send(message)

        await self.app(scope, receive, with_policy if scope["type"] == "http" else send)


app = st.App(
    Path(__file__).parents[2] / "pages" / "_shell.py",
    routes=routes(st.get_option("server.baseUrlPath")),
    middleware=[Middleware(PolicyMiddleware)],
)
