import doctest
from importlib import import_module

import pytest

from gnnretrieval import losses


@pytest.mark.parametrize("name", losses.__all__)
def test_the_example_of_every_loss_runs_and_gives_what_it_says(name):
    module = import_module(getattr(losses, name).__module__)
    failed, tried = doctest.testmod(module)
    assert failed == 0
    assert tried > 0
