from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.errors import InputError
from gnnretrieval.shards import Shard, parts


@given(total=st.integers(0, 500), count=st.integers(1, 40), unit=st.integers(1, 70))
def test_parts_cover_all_rows_in_order_in_whole_units_of_nearly_equal_number(total, count, unit):
    found = parts(total, count, unit)
    assert [row for part in found for row in range(part.start, part.stop)] == list(range(total))
    assert len(found) == min(count, -(-total // unit))
    assert all(part.start % unit == 0 for part in found)
    units = [-(-(part.stop - part.start) // unit) for part in found]
    assert not units or max(units) - min(units) <= 1


def test_a_shard_is_named_from_1_and_its_file_says_of_how_many_it_is():
    shard = Shard.parse("3/16")
    assert (shard.number, shard.total) == (2, 16)
    assert shard.file(Path("shards"), "passages") == Path("shards/passages-00003-of-00016.npy")


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "a/4", "1/", "-1/4", "1/4/2"])
def test_what_names_no_shard_is_refused(text):
    with pytest.raises(InputError, match="such as 3/16"):
        Shard.parse(text)
