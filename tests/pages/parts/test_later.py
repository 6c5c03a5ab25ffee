"""Controls are above the stage and are drawn after it."""

from tests.helpers.page_runner import open_page, open_part


def page():
    import streamlit as st

    from pages.parts.later import begin, draw_controls, forget, later, no_controls

    drawn = st.session_state["drawn"] = []

    def caption(text):
        drawn.append(text)
        st.caption(text)

    later(lambda: caption("no line"))
    if st.session_state.get("wide"):
        no_controls()
    line = st.container(key="line")
    begin(line)
    with line:
        later(lambda: caption("control"))
        later(lambda: caption("other control"))
    caption("stage")
    draw_controls()
    caption("cards")
    later(lambda: caption("drawn at once"))
    begin(st.container())
    later(lambda: caption("of a run that was cut off"))
    forget()
    draw_controls()


def test_what_waits_for_the_stage_is_drawn_in_its_place():
    at = open_part(page).run()  # the first run shows no controls before it
    assert at.session_state["drawn"] == ["no line", "stage", "control", "other control", "cards", "drawn at once"]
    assert [one.value for one in at.caption] == [
        "no line",
        "control",
        "other control",
        "stage",
        "cards",
        "drawn at once",
    ]


def test_without_controls_in_the_browser_they_are_drawn_at_once():
    at = open_part(page)
    at.session_state["wide"] = True
    for _ in range(2):
        at.run()
        assert at.session_state["drawn"][:4] == ["no line", "control", "other control", "stage"]


def test_a_lesson_draws_its_stage_before_its_controls(monkeypatch):
    from pages.conv import controls
    from visuals import stage

    events, mount, presets = [], stage.mount, controls.presets
    monkeypatch.setattr(stage, "mount", lambda *args, **more: (events.append("stage"), mount(*args, **more)))
    monkeypatch.setattr(controls, "presets", lambda *args: (events.append("controls"), presets(*args)))
    at = open_page("conv/im2col.py", H=9)
    events.clear()
    at.run()
    assert events == ["stage", "controls"] and at.number_input(key="H").value == 9
    at = open_page("conv/im2col.py", {"picture": "upload"}, picture="upload")
    events.clear()
    at.run()
    assert events == ["controls", "stage"]  # the stage needs the file
