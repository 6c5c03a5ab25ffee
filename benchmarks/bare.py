"""A page with as many elements of each kind as the lesson im2col, and nothing computed for them: it measures the share
of Streamlit itself in a rerun. `python -m benchmarks.load --bare` runs the same readers on it."""

import sys

import streamlit as st

sys.setswitchinterval(0.0005)  # as app.py
NAMES = ("N", "C", "H", "W", "K", "R", "S", "u", "v", "pad_h", "pad_w", "dilation_h", "dilation_w", "seed")
LINKS, PILLS, CODES, TEXTS = 16, 8, 4, 19


def _all() -> None:
    with st.container(key="links", horizontal=True):
        for n in range(LINKS):
            st.page_link(PAGE, label=f"link {n}", query_params={"N": str(n)})
    for n in range(PILLS):
        with st.popover(f"popover {n}"):
            st.pills("one of", ["a", "b", "c"], default="a", key=f"pills_{n}", required=True, bind="query-params")
    for name in NAMES:
        with st.container(key=f"pair_{name}", horizontal=True):
            st.number_input(name, 0.0, 999.0, 1.0, 1.0, "%.0f", key=name, required=True, bind="query-params")
    st.text_area("text", key="taps", bind="query-params")
    for n in range(CODES):
        st.caption(f"caption {n}")
        st.code("int i;", language="cpp")
    st.button("a button", key="run")
    for n in range(TEXTS):
        with st.container():
            st.html(f"<p>text {n} at {[st.session_state[name] for name in NAMES]}</p>")


PAGE = st.Page(_all, title="im2col", url_path="im2col", default=True)
st.navigation([PAGE], position="hidden").run()
