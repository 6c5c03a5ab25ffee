"""The app: `streamlit run app.py`, or any ASGI server on `app:app`."""

import streamlit as st

app = st.App("pages/_shell.py")
