"""Colours with one meaning each, light and dark: read by the stage, the charts and the theme."""

LIGHT = {
    "ground": "#ffffff", "panel": "#f7f8fa", "line": "#e3e6eb", "ink": "#1d2330", "dim": "#667085",
    "input": "#0072B2", "filter": "#B86E00", "output": "#00855f", "workspace": "#9a4f86",
    "workspace-ground": "#f6eef4", "read": "#56B4E9", "write": "#D55E00", "accent": "#3b5bdb",
}  # fmt: skip
DARK = {
    "ground": "#0f131a", "panel": "#161b24", "line": "#2a3240", "ink": "#e8ecf3", "dim": "#98a3b5",
    "input": "#5bb4ee", "filter": "#f0a93b", "output": "#3fd0a0", "workspace": "#d58fc2",
    "workspace-ground": "#1d1822", "read": "#7cc8f5", "write": "#ff8a4c", "accent": "#8aa2ff",
}  # fmt: skip
