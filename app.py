"""The app: `streamlit run app.py`, or any ASGI server on `app:app`."""

import streamlit as st

from visuals.stage.routes import routes

app = st.App("pages/_shell.py", routes=routes(st.get_option("server.baseUrlPath")))
