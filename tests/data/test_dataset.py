import json
import shutil
from pathlib import Path

import pytest

from gnnretrieval.data import Dataset, Passage, Query
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.provenance import sha256_of_file

SQUAD = Path(__file__).resolve().parents[3] / "shared" / "data" / "squad-open"  # beside the checkout, if at all


@pytest.fixture
def root(tmp_path) -> Path:
    return fill(tmp_path / "mine")


def fill(root: Path) -> Path:
    root.mkdir(exist_ok=True)
    passages = [("p1", "wiki"), ("p2", "wiki"), ("p3", "news")]
    queries = [("q1", "wiki"), ("q2", "news"), ("q3", "wiki")]
    for name, records in (("corpus", passages), ("queries", queries)):
        lines = [{"_id": id_, "text": f"text of {id_}", "metadata": {"domain": d, "year": 7}} for id_, d in records]
        (root / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    for folder, splits in {
        "qrels": {
            "zoo": [("q1", "p2", 1)],
            "test": [("q3", "p2", 1), ("q1", "p1", 2), ("q1", "p3", 0)],
            "dev": [("q2", "p3", 1)],
        },
        "other": {"train": [("q1", "p1", 1)]},
    }.items():
        (root / folder).mkdir()
        for split, rows in splits.items():
            text = "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{p}\t{s}\n" for q, p, s in rows)
            (root / folder / f"{split}.tsv").write_text(text)
    return root


def test_a_directory_by_hand_opens_without_meta_json(root):
    dataset = Dataset.open(root)
    assert (dataset.name, dataset.path, dataset.splits) == ("mine", root, ["dev", "test", "zoo"])
    assert dataset.passage_ids == ["p1", "p2", "p3"]
    assert dataset.query_ids == ["q1", "q2", "q3"]
    assert list(dataset.passages())[2] == Passage("p3", "", "text of p3")
    assert [query.id for query in dataset.queries()] == ["q1", "q2", "q3"]


def test_a_split_and_its_queries_are_in_order_of_first_appearance(root):
    dataset = Dataset.open(root)
    assert dataset.split("test") == {"q3": {"p2": 1}, "q1": {"p1": 2, "p3": 0}}
    assert list(dataset.split("test")) == ["q3", "q1"]
    assert dataset.queries_of("test") == [Query("q3", "text of q3"), Query("q1", "text of q1")]


def test_changing_a_returned_split_does_not_change_the_dataset(root):
    dataset = Dataset.open(root)
    dataset.split("test")["q1"]["p1"] = 0
    assert dataset.split("test")["q1"]["p1"] == 2


def test_qrels_names_the_folder_of_judgements(root):
    assert Dataset.open(root, qrels="other").splits == ["train"]


def test_where_keeps_records_by_metadata_and_drops_judgements_of_the_others(root):
    dataset = Dataset.open(root, where={"domain": "wiki", "year": 7})
    assert dataset.passage_ids == [passage.id for passage in dataset.passages()] == ["p1", "p2"]
    assert dataset.query_ids == [query.id for query in dataset.queries()] == ["q1", "q3"]
    assert dataset.split("test") == {"q3": {"p2": 1}, "q1": {"p1": 2}}
    assert dataset.splits == ["test", "zoo"]
    with pytest.raises(InputError, match="leaves no judgement of split 'dev'"):
        dataset.split("dev")


def test_where_accepts_a_number_as_text(root):
    assert Dataset.open(root, where={"year": "7"}).passage_ids == ["p1", "p2", "p3"]


def test_an_unknown_id_is_an_error_even_where_a_filter_would_drop_it(root):
    (root / "qrels/dev.tsv").write_text("q9\tp3\t1\n")
    with pytest.raises(InputError, match="there is no query 'q9'"):
        Dataset.open(root, where={"domain": "wiki"})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"where": {"domian": "wiki"}}, "no passage has metadata 'domian'. Did you mean 'domain'?"),
        (
            {"where": {"domain": "wikis"}},
            "no passage has metadata 'domain' = 'wikis'. Did you mean 'wiki'? Present: 'wiki', 'news'",
        ),
        ({"where": {"domain": "wiki", "year": 8}}, "no passage has metadata 'year' = 8. Present: '7'"),
        ({"qrels": "qrel"}, "no folder qrel/; wanted judgements there, such as qrel/test.tsv. Did you mean 'qrels'?"),
        ({"qrels": ""}, "Present: other, qrels."),
    ],
)
def test_a_setting_that_fits_nothing_names_what_is_there(root, settings, said):
    with pytest.raises(InputError) as caught:
        Dataset.open(root, **settings)
    assert said in str(caught.value)


def test_an_unknown_split_names_the_nearest_and_the_present(root):
    with pytest.raises(InputError, match=r"no split 'tset' in qrels/. Did you mean 'test'\? Present: dev, test, zoo"):
        Dataset.open(root).split("tset")


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_a_missing_file_is_said_before_anything_is_read(root, name):
    (root / name).unlink()
    (root / "qrels/test.tsv").write_text("broken")
    with pytest.raises(InputError, match=f"{name}: no such file"):
        Dataset.open(root)


def test_what_is_no_directory_is_a_sentence(root):
    with pytest.raises(GnnRetrievalError, match="no such directory"):
        Dataset.open(root / "none")
    with pytest.raises(InputError, match="this is a file"):
        Dataset.open(root / "corpus.jsonl")


def test_the_hash_does_not_depend_on_the_place(root, tmp_path):
    copy = shutil.copytree(root, tmp_path / "elsewhere")
    assert Dataset.open(copy).hash == Dataset.open(root).hash


def test_the_hash_depends_on_content_judgements_and_filter(root, tmp_path):
    hashes = {Dataset.open(root).hash, Dataset.open(root, qrels="other").hash}
    hashes.add(Dataset.open(root, where={"domain": "wiki"}).hash)
    with (root / "qrels/test.tsv").open("a") as file:
        file.write("q2\tp1\t1\n")
    hashes.add(Dataset.open(root).hash)
    assert len(hashes) == 4


def test_provenance_is_json_with_counts_and_file_hashes(root):
    provenance = json.loads(json.dumps(Dataset.open(root).provenance()))
    assert provenance["splits"] == {"dev": 1, "test": 2, "zoo": 1}
    assert (provenance["passages"], provenance["queries"], provenance["made_from"]) == (3, 3, None)
    assert provenance["files"]["qrels/dev.tsv"] == sha256_of_file(root / "qrels/dev.tsv")


def test_a_dataset_made_by_us_says_what_from(tmp_path):
    path = tmp_path / "made"
    make_artifact(path, "dataset", inputs={"a": "1"}, config={"source": "x"}, write=lambda to: fill(to) and None)
    assert Dataset.open(path).provenance()["made_from"] == {"inputs": {"a": "1"}, "config": {"source": "x"}}


def test_another_artifact_is_refused(tmp_path):
    make_artifact(tmp_path / "g", "graph", inputs={}, config={}, write=lambda to: fill(to) and None)
    with pytest.raises(ArtifactError, match="holds a graph, not a dataset"):
        Dataset.open(tmp_path / "g")


@pytest.mark.skipif(not SQUAD.is_dir(), reason="squad-open is not on this machine")
def test_squad_open_opens_in_seconds_and_filters_by_domain():
    dataset = Dataset.open(SQUAD, qrels="qrels_by_passage", where={"domain": "squad"})
    assert (len(dataset.passage_ids), len(dataset.query_ids)) == (2067, 10570)
    assert dataset.splits == ["train", "dev", "test"]
