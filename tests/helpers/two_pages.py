"""An app of two pages: one with a fragment that a timer of the browser runs, and one that is drawn slowly."""

import time

import streamlit as st


def polled():
    st.fragment(lambda: st.caption("polled"), run_every=1000)()


def slow():
    st.caption("drawing")
    time.sleep(1)  # meanwhile the timer of the other page fires
    st.caption("drawn")


st.navigation([st.Page(polled, default=True), st.Page(slow, url_path="slow")], position="hidden").run()
