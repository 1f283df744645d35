import resource

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.errors import ArtifactError
from gnnretrieval.storage.arrays import ArrayWriter, blocks, gather_rows, load_array, release, save_array


@given(rows=st.integers(0, 9), cut=st.integers(0, 9), width=st.integers(0, 3))
def test_an_array_written_in_two_runs_is_the_array(tmp_path_factory, rows, cut, width):
    path = tmp_path_factory.mktemp("arrays") / "array.npy"
    array = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    cut = min(cut, rows)
    first = ArrayWriter(path, array.shape, np.float16)
    first.write(array[:cut])
    first.write(np.full((rows - cut, width), 9))  # written, but not noted as done
    first.close()
    with ArrayWriter(path, array.shape, np.float16, done=cut) as second:
        second.write(array[cut:])
    loaded = load_array(path, (rows, width), np.float16)
    assert loaded.tolist() == array.tolist()
    whole = path.with_name("whole.npy")
    save_array(whole, array.astype(np.float16))
    assert path.read_bytes() == whole.read_bytes()


def test_an_array_that_lacks_rows_is_not_finished(tmp_path):
    with (
        pytest.raises(ValueError, match="1 of 3 rows were written"),
        ArrayWriter(tmp_path / "a", (3, 2), "f2") as writer,
    ):
        writer.write(np.ones((1, 2)))


@pytest.mark.parametrize(("shape", "message"), [((2, 3), "after 0 rows"), ((4, 2), "does not fit")])
def test_rows_that_do_not_fit_are_refused(tmp_path, shape, message):
    writer = ArrayWriter(tmp_path / "a", (3, 2), np.float16)
    with pytest.raises(ValueError, match=message):
        writer.write(np.ones(shape))


def test_a_truncated_array_and_one_of_another_shape_or_type_say_what_is_wrong(tmp_path):
    path = tmp_path / "array.npy"
    save_array(path, np.ones((4, 2), dtype=np.float16))
    load_array(path, (None, 2), np.float16)
    with pytest.raises(ArtifactError, match=r"its shape is \(4, 2\), and \(any, 3\) is wanted"):
        load_array(path, (None, 3))
    with pytest.raises(ArtifactError, match="its type is float16, and float32 is wanted"):
        load_array(path, (4, 2), np.float32)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ArtifactError, match="this array is damaged"):
        load_array(path)


def test_a_full_disk_is_an_error_and_not_a_signal(tmp_path):
    """A limit on the size of a file stands for the disk: writing beyond it is an OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writer = ArrayWriter(tmp_path / "array.npy", (1000, 100), np.float32)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=r"File too large: .*array\.npy"):
            writer.write(np.ones((1000, 100)))  # more than a buffer: it is written through
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_pages_that_were_given_back_are_read_again(tmp_path):
    save_array(tmp_path / "array.npy", np.arange(5000.0))
    array = load_array(tmp_path / "array.npy")
    before = array.sum()
    release(array, array[3:], np.ones(3))
    assert array.sum() == before


def test_rows_are_gathered_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("gnnretrieval.storage.arrays.ROWS_RESIDENT", 3)
    save_array(tmp_path / "array.npy", np.arange(40, dtype=np.float16).reshape(20, 2))
    rows = np.array([7, 7, 0, 19, 3, 2, 11])
    gathered = gather_rows(load_array(tmp_path / "array.npy"), rows)
    assert gathered.dtype == np.float32
    assert gathered.tolist() == [[2 * row, 2 * row + 1] for row in rows.tolist()]


def test_blocks_cover_everything_once():
    assert [(part.start, part.stop) for part in blocks(7, 3)] == [(0, 3), (3, 6), (6, 7)]
    assert list(blocks(0, 3)) == []


def with_header(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x05\x06" + bytes(18),
        with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, \n"),
        with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}\n"),
        with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -16)}\n"),
        with_header(b"{'descr': '|O', 'fortran_order': False, 'shape': (4,)}\n"),
        with_header(b"[" * 9000),
        with_header(b"{'descr': 7, 'fortran_order': 8, 'shape': 9}\n"),
    ],
)
def test_whatever_numpy_says_of_a_damaged_array_is_a_sentence(content, tmp_path):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ArtifactError, match="this array is damaged") as refused:
        load_array(tmp_path / "a.npy", (None,), np.float32)
    assert "\n" not in str(refused.value)


def test_an_array_that_is_stored_by_column_is_damaged(tmp_path):
    np.save(tmp_path / "a.npy", np.asfortranarray(np.zeros((2, 3))))
    with pytest.raises(ArtifactError, match="stored by column"):
        load_array(tmp_path / "a.npy", (2, 3))
