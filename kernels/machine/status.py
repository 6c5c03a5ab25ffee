"""Whether an engine runs on this machine, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Status:
    """Whether an engine can run here. `text`: the device's name, or the reason why it cannot run; `advice`: what to do
    then, "" if nothing can be done; `which`: "GPU 0 of 2" if a machine has several."""

    ready: bool
    text: str
    advice: str = ""
    which: str = ""

    @property
    def why(self) -> str:
        """Returns reason and advice, a sentence each, the last without its full stop."""
        return ". ".join(filter(None, (self.text, self.advice)))
