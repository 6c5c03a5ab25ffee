"""Colours of the light and the dark theme, one meaning each, for the stage, the charts and the theme.

The ground under a tensor shows its memory: `panel` is global memory; the tinted grounds are scratch space in global
memory, shared memory and registers. Tints are pale, so that cells have the strongest colour. Tests check that grounds
differ for colour-blind eyes and in grey, and that text is readable on each of them.
"""

LIGHT = {
    "ground": "#ffffff",
    "panel": "#f7f8fa",
    "line": "#e3e6eb",
    "ink": "#1d2330",
    "dim": "#626d83",
    "input": "#0071b1",
    "filter": "#9e5d00",
    "output": "#007c58",
    "workspace": "#9a4f86",
    "workspace-ground": "#f5ecf2",
    "shared-ground": "#fffcf3",
    "registers-ground": "#eff3fd",
    "read": "#56B4E9",
    "write": "#D55E00",
    "accent": "#3b5bdb",
}
DARK = {
    "ground": "#0f131a",
    "panel": "#161b24",
    "line": "#2a3240",
    "ink": "#e8ecf3",
    "dim": "#98a3b5",
    "input": "#5bb4ee",
    "filter": "#f0a93b",
    "output": "#3fd0a0",
    "workspace": "#d58fc2",
    "workspace-ground": "#1a121b",
    "shared-ground": "#25231b",
    "registers-ground": "#1a2031",
    "read": "#7cc8f5",
    "write": "#ff8a4c",
    "accent": "#8aa2ff",
}
