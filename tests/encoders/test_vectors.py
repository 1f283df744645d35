import sys
from pathlib import Path

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders import find_checkpoint, vector_file
from gnnretrieval.encoders.features import Features
from gnnretrieval.encoders.vector_file import open_vectors
from gnnretrieval.encoders.vectors import VectorSettings, import_vectors
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError

COSINE = VectorSettings(name="an-api", similarity="cosine")
DOT = VectorSettings(name="an-api", similarity="dot", scale=0.5)
WIDTH = 6


@pytest.fixture
def dataset(tiny_dataset):
    return Dataset.open(tiny_dataset)


@pytest.fixture
def given(dataset):
    """Vectors of the dataset's passages and queries, in its order."""
    rng = np.random.default_rng(0)
    return {
        "passages": rng.normal(size=(len(dataset.passage_ids), WIDTH)).astype(np.float32),
        "queries": rng.normal(size=(len(dataset.query_ids), WIDTH)).astype(np.float32),
    }


@pytest.fixture
def paths(given, tmp_path):
    """The same as files."""
    for name, vectors in given.items():
        np.save(tmp_path / f"{name}.npy", vectors)
    return {name: tmp_path / f"{name}.npy" for name in given}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(vector_file, "BLOCK", 7)


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def save_parquet(path: Path, ids, vectors, kind="list", id_column="_id", row_group=9) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    types = {"list": pa.list_(pa.float32()), "fixed": pa.list_(pa.float64(), WIDTH), "half": pa.list_(pa.float16())}
    values = [None if v is None else list(np.asarray(v, dtype="f2" if kind == "half" else "f8")) for v in vectors]
    table = pa.table({"text": ["?"] * len(ids), id_column: ids, "embedding": pa.array(values, types[kind])})
    pyarrow.parquet.write_table(table, path, row_group_size=row_group)
    return path


def test_npy_in_the_datasets_order_become_features_of_length_one_under_cosine(dataset, given, paths, tmp_path):
    features = import_vectors(dataset, **paths, settings=COSINE, out=tmp_path / "f")
    assert features.passages.dtype == np.float16
    np.testing.assert_allclose(features.passages, unit(given["passages"]), atol=1e-3)
    np.testing.assert_allclose(features.queries, unit(given["queries"]), atol=1e-3)
    with TextStore(features.path / "texts.sqlite") as texts:
        assert (texts.passage_ids(), texts.query_ids()) == (dataset.passage_ids, dataset.query_ids)
    assert features.rows_of(["test-00", "train-00"]).tolist() == [70, 0]
    assert sorted(features.meta["files"]) == ["passages.npy", "queries.npy", "texts.sqlite"]


def test_under_the_dot_product_they_are_kept_as_they_are(dataset, given, paths, tmp_path):
    features = import_vectors(dataset, **paths, settings=DOT, out=tmp_path / "f")
    np.testing.assert_array_equal(features.passages, given["passages"].astype(np.float16))
    assert (features.similarity.normalize, features.similarity.scale) == (False, 0.5)


def test_the_artifact_says_everything_that_encoded_features_say(dataset, paths, tmp_path, tiny_features):
    features = import_vectors(dataset, **paths, settings=COSINE, out=tmp_path / "f")
    assert set(features.meta) >= set(tiny_features.meta)
    assert set(features.meta["inputs"]) >= set(tiny_features.meta["inputs"])
    assert set(features.meta["encoder"]) == set(tiny_features.meta["encoder"])
    assert features.meta["encoder"]["checkpoint"] == "vectors:an-api"
    assert features.meta["inputs"]["texts"] == tiny_features.meta["inputs"]["texts"]
    assert (features.similarity.normalize, features.similarity.scale) == (True, 20)


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
@pytest.mark.parametrize("form", ["npy", "list", "fixed", "half"])
def test_ids_decide_which_vector_is_whose_and_other_ids_are_left_out(
    dataset, given, paths, tmp_path, order, form, said
):
    ids, vectors = [*dataset.passage_ids], [*given["passages"]]
    ids[5:5], vectors[5:5] = ["stranger", "another"], [np.full(WIDTH, np.nan), np.zeros(WIDTH)]
    if order == "shuffled":
        shuffled = np.random.default_rng(1).permutation(len(ids))
        ids, vectors = [ids[n] for n in shuffled], [vectors[n] for n in shuffled]
    if form == "npy":
        np.save(tmp_path / "p.npy", np.array(vectors))
        (tmp_path / "ids.txt").write_text("".join(f"{id_}\r\n" for id_ in ids))
        how = {"passages": tmp_path / "p.npy", "passage_ids": tmp_path / "ids.txt"}
    else:
        how = {"passages": save_parquet(tmp_path / "p.parquet", ids, vectors, form)}
    features = import_vectors(dataset, **how, queries=paths["queries"], settings=COSINE, out=tmp_path / "f")
    np.testing.assert_allclose(features.passages, unit(given["passages"]), atol=2e-3)
    assert features.meta["ignored"] == {"passages": 2, "queries": 0}
    assert any("2 vectors of other passages" in line for line in said)
    assert sorted(features.meta["files"]) == ["passages.npy", "queries.npy", "texts.sqlite"]


def test_parquet_ids_may_be_integers_and_the_column_of_ids_called_id(tmp_path):
    path = save_parquet(tmp_path / "v.parquet", [3, 1], np.eye(WIDTH)[:2], id_column="id")
    opened = open_vectors(path)
    assert (opened.ids, opened.count, opened.dimension) == (["3", "1"], 2, WIDTH)


@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f8"])
def test_vectors_come_in_blocks_with_their_rows(tmp_path, dtype):
    vectors = np.arange(20 * WIDTH).reshape(20, WIDTH).astype(dtype)
    np.save(tmp_path / "v.npy", vectors)
    opened = open_vectors(tmp_path / "v.npy")
    assert opened.ids is None
    found = list(opened.blocks())
    assert [(part.start, part.stop) for part, _ in found] == [(0, 7), (7, 14), (14, 20)]
    np.testing.assert_array_equal(np.concatenate([block for _, block in found]), vectors)
    assert all(block.dtype.isnative and block.dtype.kind == "f" for _, block in found)


def test_made_again_it_is_reused_and_with_other_vectors_it_is_an_error(dataset, given, paths, tmp_path, said):
    made = import_vectors(dataset, **paths, settings=COSINE, out=tmp_path / "f")
    assert import_vectors(dataset, **paths, settings=COSINE, out=tmp_path / "f").meta == made.meta
    assert "already made" in said[0]
    np.save(paths["queries"], given["queries"] + 1)
    with pytest.raises(ArtifactError, match="its vectors of queries changed"):
        import_vectors(dataset, **paths, settings=COSINE, out=tmp_path / "f")


def test_interrupted_the_same_command_makes_the_same_bytes(dataset, given, paths, tmp_path, monkeypatch):
    order = np.random.default_rng(1).permutation(40)
    ids = [dataset.passage_ids[row] for row in order]
    paths["passages"] = save_parquet(tmp_path / "p.parquet", ids, given["passages"][order])
    whole = import_vectors(dataset, **paths, settings=COSINE, out=tmp_path / "whole")
    blocks = vector_file.VectorFile.blocks
    for stop in range(0, 18, 4):
        seen = []

        def until(self, wanted=None, stop=stop, seen=seen):
            for found in blocks(self, wanted):
                if len(seen) == stop:
                    raise KeyboardInterrupt
                seen.append(found)
                yield found

        with monkeypatch.context() as patch:
            patch.setattr(vector_file.VectorFile, "blocks", until)
            with pytest.raises(KeyboardInterrupt):
                import_vectors(dataset, **paths, settings=COSINE, out=tmp_path / "f")
    assert import_vectors(dataset, **paths, settings=COSINE, out=tmp_path / "f").hash == whole.hash


def test_the_hash_is_the_encoders_not_the_vectors(dataset, given, paths, tmp_path):
    first = import_vectors(dataset, **paths, settings=COSINE, out=tmp_path / "a").meta["checkpoint_hash"]
    assert first["query"] == first["passage"] == COSINE.hash(WIDTH)
    np.save(paths["queries"], given["queries"] + 1)
    assert import_vectors(dataset, **paths, settings=COSINE, out=tmp_path / "b").meta["checkpoint_hash"] == first
    others = [COSINE.model_copy(update=change) for change in ({"name": "b"}, {"similarity": "dot"})]
    hashes = {COSINE.hash(WIDTH), COSINE.hash(WIDTH + 1), *(other.hash(WIDTH) for other in others)}
    assert len(hashes) == 4


def spoiled(array, row, value):
    array = array.copy()
    array[row, 1] = value
    return array


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda v: v[:-1], r"39 vectors, and there are 40 ids"),
        (lambda v: np.vstack([v, v[:1]]), r"41 vectors, and there are 40 ids"),
        (lambda v: v[:, :5], r"vectors of 6 numbers, and .* has 5"),
        (lambda v: v[0], r"an array \(6,\) of float32; wanted floats"),
        (lambda v: v.astype(int), r"of int64; wanted floats"),
        (lambda v: v[:, :0], r"an array \(40, 0\)"),
        (lambda v: spoiled(v, 12, np.nan), r"the vector of 'p12' holds a number that is NaN or infinite"),
        (lambda v: spoiled(v, 39, -np.inf), r"the vector of 'p39' holds a number that is NaN or infinite"),
        (lambda v: spoiled(v, 3, 1e6), r"the vector of 'p03' holds a number beyond float16's 65504"),
        (lambda v: v * np.where(np.arange(len(v)) == 3, 1e-9, 1)[:, None], r"'p03' has numbers too small for float16"),
        (lambda v: spoiled(v, 3, 65505), r"the vector of 'p03' holds a number beyond float16's 65504"),
    ],
)
def test_vectors_that_cannot_be_are_refused_by_name_and_nothing_is_left(dataset, given, paths, tmp_path, spoil, says):
    np.save(paths["passages"], spoil(given["passages"]))
    with pytest.raises(InputError, match=says):
        import_vectors(dataset, **paths, settings=DOT, out=tmp_path / "f")
    assert {path.name for path in tmp_path.iterdir()} == {"passages.npy", "queries.npy"}


def test_a_zero_vector_has_no_cosine(dataset, given, paths, tmp_path):
    given["queries"][70] = 0
    np.save(paths["queries"], given["queries"])
    with pytest.raises(InputError, match="the vector of 'test-00' is zero"):
        import_vectors(dataset, **paths, settings=COSINE, out=tmp_path / "f")
    assert {path.name for path in tmp_path.iterdir()} == {"passages.npy", "queries.npy"}
    assert not import_vectors(dataset, **paths, settings=DOT, out=tmp_path / "f").queries[70].any()


def test_a_missing_vector_is_counted_and_the_first_one_named(dataset, given, paths, tmp_path):
    ids = [id_ for id_ in dataset.passage_ids if id_ not in ("p07", "p30")]
    paths["passages"] = save_parquet(tmp_path / "p.parquet", ids, given["passages"][:38])
    with pytest.raises(InputError, match=r"2 of the dataset's 40 have no vector among these 38, .* 'p07'"):
        import_vectors(dataset, **paths, settings=COSINE, out=tmp_path / "f")


def test_ids_that_do_not_fit_the_vectors_are_refused(paths, tmp_path):
    ids = tmp_path / "ids.txt"
    ids.write_text("a\nb\n")
    with pytest.raises(InputError, match=r"40 vectors, and .*ids.txt has 2 ids"):
        open_vectors(paths["passages"], ids)
    ids.write_text("".join(f"{n % 39}\n" for n in range(40)))
    with pytest.raises(InputError, match=r"ids.txt: '0' is there twice"):
        open_vectors(paths["passages"], ids)
    with pytest.raises(InputError, match=r"v.parquet: 'a' is there twice"):
        open_vectors(save_parquet(tmp_path / "v.parquet", ["a", "b", "a"], np.eye(WIDTH)[:3]))
    with pytest.raises(InputError, match="leave out the file of ids"):
        open_vectors(tmp_path / "v.parquet", ids)


@pytest.mark.parametrize(
    ("vectors", "says"),
    [
        ([[1.0] * WIDTH, [1.0] * 3], "the vector of 'b' has 3 numbers, and 6 are in the first"),
        ([[1.0] * WIDTH, None], "the vector of 'b' is empty"),
        ([[1.0] * WIDTH, [1.0, None, 1.0, 1.0, 1.0, 1.0]], "the vector of 'b' lacks a number"),
        ([None, [1.0] * WIDTH], "begins with no vector"),
    ],
)
def test_a_parquet_vector_of_another_width_or_with_a_gap_is_refused_by_name(tmp_path, vectors, says):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = pa.table({"id": ["a", "b"], "vector": pa.array(vectors, pa.list_(pa.float32()))})
    pyarrow.parquet.write_table(table, tmp_path / "v.parquet")
    with pytest.raises(InputError, match=says):
        list(open_vectors(tmp_path / "v.parquet").blocks())


@pytest.mark.parametrize("names", [["id", "id", "vector"], ["id", "vector", "vector"]])
def test_parquet_with_two_columns_of_one_name_is_refused(tmp_path, names):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    arrays = [pa.array(["a"]) if name == "id" else pa.array([[1.0]]) for name in names]
    pyarrow.parquet.write_table(pa.table(arrays, names=names), tmp_path / "v.parquet")
    with pytest.raises(InputError, match=r"two columns have one name: id, .*vector\. Rename one"):
        open_vectors(tmp_path / "v.parquet")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"vector": [[1.0]]}, "no column of ids: wanted id or _id; present: vector"),
        ({"id": ["a"], "x": [1.0]}, r"no column of vectors; .* Present: id \(string\), x \(double\)"),
        ({"id": ["a"], "x": [[1.0]], "y": [[1.0]]}, r"2 columns of vectors \(x, y\)"),
        ({"id": ["a"], "vector": [[1]]}, "no column of vectors"),
        ({"id": [1.5], "vector": [[1.0]]}, "column id holds double"),
        ({"id": ["a", None], "vector": [[1.0], [1.0]]}, "row 1 has no id"),
    ],
)
def test_parquet_without_the_columns_wanted_says_what_it_has(tmp_path, columns, says):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "v.parquet")
    with pytest.raises(InputError, match=says):
        open_vectors(tmp_path / "v.parquet")


def test_of_several_columns_of_vectors_the_one_that_is_called_so_is_taken(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table({"id": ["a"], "x": [[1.0]], "Vector": [[2.0, 3.0]]}), tmp_path / "v.parquet")
    ((_, block),) = open_vectors(tmp_path / "v.parquet").blocks()
    assert block.tolist() == [[2, 3]]


def test_files_that_are_no_vectors_are_refused_and_pickles_not_opened(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    np.save(tmp_path / "whole.npy", np.ones((100, WIDTH)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:1000])
    for name in ("bad.npy", "bad.parquet", "bad.bin"):
        (tmp_path / name).write_text("hello")
    for name, says in {
        "objects.npy": "no .npy file of numbers",
        "cut.npy": "no .npy file of numbers, or a damaged one",
        "bad.npy": "no .npy file of numbers",
        "bad.bin": "read from .npy and .parquet",
        "nowhere.npy": "no such file",
        ".": "this is a directory",
    }.items():
        with pytest.raises(InputError, match=says):
            open_vectors(tmp_path / name)
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="no Parquet file, or a damaged one"):
        open_vectors(tmp_path / "bad.parquet")


def test_without_pyarrow_parquet_says_what_to_install(tmp_path, monkeypatch):
    path = save_parquet(tmp_path / "v.parquet", ["a"], np.eye(WIDTH)[:1])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(GnnRetrievalError, match=r"pip install 'gnnretrieval\[parquet\]'"):
        open_vectors(path)


def test_an_encoder_that_only_gave_vectors_is_not_looked_for():
    with pytest.raises(GnnRetrievalError, match=r"vectors:an-api: .* made outside of gnnretrieval.*--vectors FILE"):
        find_checkpoint("vectors:an-api")


@pytest.mark.parametrize("name", ["", "  ", "two\nlines"])
def test_a_name_is_one_line_of_something(name):
    with pytest.raises(InputError, match="name"):
        VectorSettings.parse({"name": name, "similarity": "cosine"})


def test_ids_given_with_a_file_of_vectors_are_refused(tiny_dataset, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    with pytest.raises(InputError, match="a file names the ids of its vectors: give no ids of passages"):
        Features.from_vectors(dataset, "p.npy", "q.npy", tmp_path / "out", passage_ids=dataset.passage_ids)
