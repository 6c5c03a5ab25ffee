"""What a run does is shown in the reader's language, though its process says it in English."""

import pytest

from kernels import activity
from kernels.activity import TEMPLATES


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_text_of_a_run_is_translated(template, monkeypatch):
    monkeypatch.setattr("kernels.i18n.tr", lambda message, **fields: f"<{message}> {fields}")
    fields = {
        name: value
        for name, value in {"kernel": "im2col", "n": "3", "step": "7", "all": "9"}.items()
        if f"{{{name}}}" in template
    }
    assert activity.shown(template.format(**fields)) == f"<{template}> {fields}"


def test_a_text_of_no_template_stays():
    assert activity.shown("a text of another program") == "a text of another program"
