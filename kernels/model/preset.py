"""A named shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic

from kernels.i18n import tr
from kernels.model.shape import S


@dataclass(frozen=True)
class Preset(Generic[S]):
    """A shape with a name for links (`key`), a label for a chip, and its source, in the reader's language.

    The texts are messages; `fields` fill the named fields of both.
    """

    key: str
    label_text: str
    shape: S
    source_text: str
    fields: Mapping[str, object] = field(default_factory=dict, hash=False)

    @property
    def label(self) -> str:
        return tr(self.label_text, **self.fields)

    @property
    def source(self) -> str:
        return tr(self.source_text, **self.fields)
