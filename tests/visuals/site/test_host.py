"""The stand-in for Streamlit: what it records of a page, in a process of its own."""

import json
import subprocess
import sys

from tests.helpers.harness import ROOT

CODE = """
import json
from visuals.site import host
one = host.Host()
host.install(one)
import streamlit as st
one.run = host._Run("lesson", host.Query({"M": "8", "mode": "b", "N": "many"}), {})
one.run.open.append(one.run.root)
with st.container(key="row", horizontal=True):
    st.html("<p>in it</p>")
    later = st.empty()
st.html("<p>after it</p>")
with later.container():
    st.caption("put in later")
values = [
    st.number_input("M", 1.0, 9.0, 4.0, key="M", bind="query-params"),
    st.pills("mode", ["a", "b"], default="a", key="mode", bind="query-params"),
    st.selectbox("kept", [1, 2], index=1, key="kept", bind="query-params"),
    st.number_input("N", 1.0, 9.0, 3.0, key="N", bind="query-params"),
    st.button("Run"),
]
try:
    st.rerun()
except host.Rerun:
    values.append("rerun")
print(json.dumps([one.run.root, values]))
"""


def test_elements_and_values():
    """Containers keep their place, and a control has the value of the URL, its default if the URL's is not valid."""
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    elements, values = json.loads(done.stdout)
    row, after, *controls = elements
    assert row["t"] == "box" and row["k"] == "row" and row["hz"]
    assert row["c"][0]["h"] == "<p>in it</p>" and row["c"][1]["c"][0]["c"][0]["l"] == "put in later"
    assert after["h"] == "<p>after it</p>"
    assert values == [8.0, "b", 2, 3.0, False, "rerun"]
    assert [one["v"] for one in controls[:4]] == [8.0, "b", "2", 3.0]
    assert [one["d"] for one in controls[:4]] == [4.0, "a", "2", 3.0]


def test_visuals_and_kernels_import_no_streamlit():
    """Python in a browser has neither Streamlit nor Plotly: what it runs must not import them."""
    code = (
        "import sys; import visuals.site.unit, visuals.site.host, kernels.ladders;"
        "heavy = {'streamlit', 'plotly', 'numba', 'cupy', 'PIL'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
