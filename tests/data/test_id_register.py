import random

import pytest

from gnnretrieval.data import id_register
from gnnretrieval.data.id_register import IdRegister


@pytest.mark.parametrize("ranges", [10_000, 3])
def test_it_is_a_set_whatever_the_ids_and_their_order(ranges, monkeypatch):
    monkeypatch.setattr(id_register, "_RANGES", ranges)
    rng = random.Random(1)
    for _ in range(60):
        ids = [
            rng.choice(
                [str(rng.randrange(40)), f"{rng.randrange(20):03d}", f"doc{rng.randrange(20)}", "0", "²", "9" * 20]
            )
            for _ in range(120)
        ]
        register, known = IdRegister(), set()
        for id_ in ids:
            assert (id_ in register) == (id_ in known)
            assert register.add(id_) == (id_ not in known)
            known.add(id_)
        assert len(register) == len(known)
        for number in range(-1, 42):
            assert (str(number) in register) == (str(number) in known)


def test_a_number_is_seen_again_after_a_range_grew_up_to_it(monkeypatch):
    monkeypatch.setattr(id_register, "_RANGES", 3)
    register = IdRegister()
    added = [register.add(id_) for id_ in ("0", "10", "20", "12", "11", "12", "13", "13")]
    assert added == [True, True, True, True, True, False, True, False]
    rng = random.Random(2)
    for _ in range(40):
        register, known = IdRegister(), set()
        for id_ in (str(rng.randrange(40)) for _ in range(120)):
            assert register.add(id_) == (id_ not in known)
            known.add(id_)


def test_numbers_in_a_row_take_no_memory():
    register = IdRegister()
    assert all(register.add(str(number)) for number in range(50_000))
    assert (len(register._starts), len(register._hashes)) == (1, 0)
    assert not register.add("49999")
    assert "50000" not in register
