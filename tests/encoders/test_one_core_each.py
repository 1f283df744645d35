import threading

import pytest
import torch

from gnnretrieval.encoders.parallel_batches import map_batches


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_order_and_torch_has_its_threads_back(two_threads):
    met = threading.Barrier(2, timeout=10)  # passed only by two at a time

    def double(item: int) -> tuple[int, int]:
        met.wait()
        return 2 * item, torch.get_num_threads()

    assert list(map_batches(double, range(6))) == [(2 * item, 1) for item in range(6)]
    assert torch.get_num_threads() == 2


def test_a_single_item_has_all_threads(two_threads):
    assert list(map_batches(lambda item: (item, torch.get_num_threads()), [7])) == [(7, 2)]
    assert list(map_batches(str, [])) == []


def test_after_an_error_the_threads_are_back_and_it_works_again(two_threads):
    with pytest.raises(ZeroDivisionError):
        list(map_batches(lambda item: 1 / item, [1, 0, 2]))
    assert torch.get_num_threads() == 2
    assert list(map_batches(str, [1, 2])) == ["1", "2"]


def test_after_an_error_the_others_are_told_to_stop(two_threads):
    stop, begun = threading.Event(), threading.Event()

    def work(item: int) -> bool:
        if item:
            begun.set()
            return stop.wait(10)
        begun.wait(10)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(map_batches(work, [0, 1], stop))
    assert stop.is_set()


def test_inside_of_another_it_takes_no_more_threads(two_threads):
    def inner(item: int) -> list[int]:
        return list(map_batches(lambda other: item + other, [1, 2]))

    assert list(map_batches(inner, [10, 20])) == [[11, 12], [21, 22]]
