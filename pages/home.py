"""The first screen: what this is, and the way in."""

from html import escape

import streamlit as st

from kernels.presets import CONV_PRESETS
from pages import _address

PROMISE = "What you watch is what you measured."
INTO = {
    "cudnn-paper": "the figure of the cuDNN paper",
    "lenet-conv1": "LeNet’s first layer",
    "resnet50-conv1-n1": "ResNet-50’s first layer",
    "vgg-conv1_2": "VGG’s second layer",
}
ENGINES = {
    "cuda": "CUDA kernels on an NVIDIA GPU",
    "emulator": "CUDA kernels, thread by thread, without a GPU",
    "cpu": "the same algorithms on this processor",
}


@st.cache_data(ttl=60, show_spinner=False)
def engines() -> dict[str, str]:
    """What runs on this machine: engine -> its device, or why it is absent. Empty where nobody can say."""
    try:
        from kernels.engines import available
    except ImportError:
        return {}
    return {name: status.text for name, status in available().items()}


st.html(
    f'<div class="kt-home"><h1 class="kt-title">Kernel Theatre</h1><p class="kt-promise">{PROMISE}</p>'
    '<p class="kt-idea">GPU kernels, explained by running them. Set the shape of a convolution and see '
    "every number on its way from the input to the output.</p><ul>"
    "<li><b>Set</b> images, channels, filters, stride, padding: any shape that is valid, none that is not.</li>"
    "<li><b>Watch</b> each value move, forwards, backwards, one step at a time; point at a cell to see what it is made of.</li>"
    "<li><b>Run</b> the CUDA kernels on your GPU, or the same algorithms on your processor: time and memory as "
    "measured, recordings from an NVIDIA H200 beside them.</li>"
    "<li><b>Share</b> what you see: every control stands in the address.</li></ul></div>"
)
with st.container(key="enter"):
    st.page_link("im2col.py", label="Open the first lesson: im2col")
st.html('<p class="kt-quiet">Or begin with a layer you know:</p>')
with st.container(key="chips", horizontal=True):
    for key, label in INTO.items():
        preset = CONV_PRESETS[key]
        st.page_link(
            "im2col.py",
            label=label,
            query_params=_address.at(_address.DEFAULT, preset.shape),
            help=preset.source,
        )
rows = "".join(
    f"<tr><th>{escape(ENGINES.get(name, name))}</th><td>{escape(said)}</td></tr>"
    for name, said in engines().items()
)
st.html(
    f'<div class="kt-home"><h2 class="kt-section">On this machine</h2><table class="kt-table">{rows}</table></div>'
    if rows
    else '<p class="kt-quiet">The lessons play on this machine without a GPU.</p>'
)
