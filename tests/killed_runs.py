"""Trainings of encoders that are killed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gnnretrieval.training.encoder.loop import EncoderLoop


class Killed(BaseException):
    """The end of a run that was killed."""


@contextmanager
def killed_before(number: int) -> Iterator[None]:
    """Within, a training must reach step ``number``, and ends there."""

    def step(self: EncoderLoop, at: int, real: Callable[[EncoderLoop, int], float] = EncoderLoop.step) -> float:
        if at == number:
            raise Killed
        return real(self, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EncoderLoop, "step", step)
        with pytest.raises(Killed):
            yield
