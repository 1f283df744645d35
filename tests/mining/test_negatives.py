import json
import shutil

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.data.answers import answer_words
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.index.late_search import late_run
from gnnretrieval.mining import mine_negatives
from gnnretrieval.mining import negatives as negatives_module
from gnnretrieval.mining.negatives import NegativeSettings


def ids(candidates) -> list[str]:
    return [candidate.passage for candidate in candidates]


def test_by_hand_what_bm25_finds_without_the_relevant_passage_and_its_copy(dataset, tmp_path):
    made = mine_negatives(dataset, NegativeSettings(), tmp_path / "negatives")
    (example,) = made.examples()
    assert example.query == "q1"
    assert [(one.passage, one.source, one.rank) for one in example.positives] == [("a", "label", None)]
    # "red apple" is found in a, b, c, d and f; a is relevant and b has its text.
    assert sorted(ids(example.negatives)) == ["c", "d", "f"]
    texts = [passage.full_text for passage in dataset.passages()]
    rows, scores = BM25(texts).top_k("red apple", 100)
    ranks = {dataset.passage_ids[row]: (rank, score) for rank, (row, score) in enumerate(zip(rows, scores), 1)}  # noqa: B905
    for one in example.negatives:
        assert one.source == "bm25"
        assert one.rank == ranks[one.passage][0]
        assert np.float32(one.score) == ranks[one.passage][1]
    report = made.report.as_json()
    assert report["queries"] == {"in": 2, "kept": 1, "left_out": {"without a relevant passage": 1}}
    assert report["candidates"] == {
        "in": 5,
        "positives": {"label": 1},
        "negatives": 3,
        "dropped": {"relevant": 1, "with the text of a relevant passage": 1},
    }
    assert report["noted"] == {"queries that found fewer than 100 passages": 1}


def test_a_passage_that_is_judged_irrelevant_may_be_a_negative(dataset, tmp_path):
    (example,) = mine_negatives(dataset, NegativeSettings(), tmp_path / "negatives").examples()
    assert "c" in ids(example.negatives)


def test_a_passage_with_an_answer_as_whole_words_is_dropped_where_that_is_wanted(dataset, tmp_path):
    settings = NegativeSettings(answers="drop")
    made = mine_negatives(dataset, settings, tmp_path / "negatives")
    (example,) = made.examples()
    assert sorted(ids(example.negatives)) == ["c", "f"]  # d has a pie
    assert made.report.candidates.dropped["with an answer in it"] == 1
    assert answer_words("Pie") not in answer_words("a piece, magpie")
    assert answer_words("New York") in answer_words("In new  york, 1999")


def test_a_query_that_is_a_passage_is_no_negative_of_its_own(dataset, tmp_path):
    with (dataset.path / "corpus.jsonl").open("a") as file:
        for id_, title, text in (("q1", "Fruit", "Red apple!"), ("x", "", "red apple"), ("q2", "", "red apple cake")):
            file.write(json.dumps({"_id": id_, "title": title, "text": text}) + "\n")
    made = mine_negatives(Dataset.open(dataset.path), NegativeSettings(), tmp_path / "negatives")
    (example,) = made.examples()
    assert sorted(ids(example.negatives)) == ["c", "d", "f", "q2"]
    assert made.report.candidates.dropped["the query itself"] == 2


def test_queries_without_answers_are_counted_and_keep_their_candidates(dataset, tmp_path, said):
    made = mine_negatives(dataset, NegativeSettings(answers="drop", split="dev"), tmp_path / "negatives")
    assert "1 query without answers: none of their candidates is dropped for one" in said
    (example,) = made.examples()
    assert example.negatives == ()
    assert "1 query without a negative" in said


def test_by_features_they_are_the_exact_top_k_without_the_relevant(tiny_dataset, tiny_features, tmp_path):
    opened = Dataset.open(tiny_dataset)
    made = mine_negatives(opened, NegativeSettings(top_k=10), tmp_path / "negatives", features=tiny_features)
    relevant = opened.split("train")
    found = list(made.examples())
    assert [example.query for example in found] == list(relevant)
    rows, scores = exact_top_k(
        tiny_features.queries[tiny_features.rows_of(relevant)], tiny_features.passages, 10, tiny_features.similarity
    )
    for example, of_query, by in zip(found, rows, scores, strict=True):
        labels = {id_ for id_, relevance in relevant[example.query].items() if relevance > 0}
        assert set(ids(example.positives)) == labels
        expected = [
            (opened.passage_ids[row], rank, score)
            for rank, (row, score) in enumerate(zip(of_query, by, strict=True), 1)
            if opened.passage_ids[row] not in labels
        ]
        assert [(one.passage, one.rank, np.float32(one.score)) for one in example.negatives] == expected
        assert {one.source for one in example.negatives} == {"dual-encoder"}


def test_the_best_ranks_are_passed_over(tiny_dataset, tiny_features, tmp_path):
    settings = NegativeSettings(top_k=10, skip=4)
    made = mine_negatives(Dataset.open(tiny_dataset), settings, tmp_path / "negatives", features=tiny_features)
    ranks = [one.rank for example in made.examples() for one in example.negatives]
    assert (min(ranks), max(ranks)) == (5, 10)
    assert made.report.candidates.dropped["of the ranks passed over"] == 4 * 60


def test_the_sample_is_of_the_query_alone_whatever_the_blocks(tiny_dataset, tiny_features, tmp_path, monkeypatch):
    opened, settings = Dataset.open(tiny_dataset), NegativeSettings(top_k=20, negatives=3)
    all_of_them = mine_negatives(opened, NegativeSettings(top_k=20), tmp_path / "all", features=tiny_features)
    made = mine_negatives(opened, settings, tmp_path / "three", features=tiny_features)
    monkeypatch.setattr(negatives_module, "_TEXTS", 60)
    blockwise = mine_negatives(opened, settings, tmp_path / "blocks", features=tiny_features)
    assert blockwise.meta["files"] == made.meta["files"]
    for few, every in zip(made.examples(), all_of_them.examples(), strict=True):
        assert len(few.negatives) == 3
        assert [one for one in every.negatives if one in few.negatives] == list(few.negatives)
    other = mine_negatives(
        opened, NegativeSettings(top_k=20, negatives=3, seed=1), tmp_path / "s", features=tiny_features
    )
    assert other.hash != made.hash


def test_fewer_than_asked_are_kept_as_they_are_and_said(dataset, tmp_path, said):
    made = mine_negatives(dataset, NegativeSettings(negatives=4), tmp_path / "negatives")
    (example,) = made.examples()
    assert len(example.negatives) == 3
    assert "1 query with fewer than 4 negatives" in said
    assert "1 query that found fewer than 100 passages" in said


def test_more_ranks_than_passages_are_all_passages(dataset, tiny_dataset, tiny_features, tmp_path):
    settings = NegativeSettings(top_k=1000)
    made = mine_negatives(Dataset.open(tiny_dataset), settings, tmp_path / "negatives", features=tiny_features)
    assert all(len(example.positives) + len(example.negatives) == 40 for example in made.examples())


def test_by_sentences_a_passage_has_the_score_of_its_best_one(tiny_dataset, tiny_settings, tiny_checkpoint, tmp_path):
    from gnnretrieval.encoders.features import encode_dataset

    opened = Dataset.open(tiny_dataset)
    settings = tiny_settings.model_copy(update={"sentences": "mean"})
    features = encode_dataset(opened, settings, tmp_path / "features")
    made = mine_negatives(opened, NegativeSettings(top_k=5), tmp_path / "negatives", features=features)
    starts, example = np.asarray(features.sentence_starts), next(made.examples())
    rows, scores = exact_top_k(
        features.queries[features.rows_of([example.query])],
        features.sentences,
        len(features.sentences),
        features.similarity,
    )
    best: dict[str, float] = {}
    for row, score in zip(rows[0], scores[0], strict=True):
        best.setdefault(opened.passage_ids[int(np.searchsorted(starts, row, side="right")) - 1], score)
    assert example.negatives
    for one in example.negatives:
        assert np.float32(one.score) == best[one.passage]
        assert one.rank == list(best).index(one.passage) + 1


def test_by_late_interaction_a_passage_has_its_maxsim(tiny_dataset, tiny_late, tmp_path):
    opened = Dataset.open(tiny_dataset)
    made = mine_negatives(opened, NegativeSettings(top_k=5), tmp_path / "negatives", features=tiny_late)
    example = next(made.examples())
    (ranking,) = late_run(tiny_late, [example.query], 40).values()
    scores = {one.passage_id: (rank, one.score) for rank, one in enumerate(ranking, 1)}
    assert example.negatives
    for one in example.negatives:
        assert one.rank == scores[one.passage][0]
        assert one.score == pytest.approx(scores[one.passage][1], abs=1e-5)


def test_the_same_inputs_are_reused_and_the_artifact_says_what_it_is_made_from(
    tiny_dataset, tiny_features, tmp_path, said
):
    opened = Dataset.open(tiny_dataset)
    made = mine_negatives(opened, NegativeSettings(top_k=5), tmp_path / "negatives", features=tiny_features)
    again = mine_negatives(opened, NegativeSettings(top_k=5), tmp_path / "negatives", features=tiny_features)
    assert again.meta == made.meta
    assert "already made" in said[-1]
    assert made.meta["inputs"] == {"dataset": opened.hash, "features": tiny_features.hash}
    assert made.meta["dataset"] == opened.provenance()
    assert made.made_from("features") == tiny_features.path
    assert made.made_from("dataset") == tiny_dataset
    assert sorted(made.meta["files"]) == ["examples.jsonl", "report.json"]
    with pytest.raises(ArtifactError, match="top_k was 5 and is now 6"):
        mine_negatives(opened, NegativeSettings(top_k=6), tmp_path / "negatives", features=tiny_features)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"skip": 5, "top_k": 5}, "skip = 5 leaves out all top_k = 5 ranks"),
        ({"top_k": 0}, "top_k"),
        ({"negatives": -1}, "negatives"),
        ({"answer": "drop"}, "Did you mean 'answers'"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_a_sentence(given, says):
    with pytest.raises(InputError, match=says):
        NegativeSettings.parse(given)


def test_a_split_that_is_not_there_or_has_no_positive_is_refused(dataset, tmp_path):
    with pytest.raises(InputError, match="there is no split 'trian'"):
        mine_negatives(dataset, NegativeSettings(split="trian"), tmp_path / "out")
    (dataset.path / "qrels" / "zero.tsv").write_text("q1\ta\t0\n")
    with pytest.raises(InputError, match="split 'zero' has no query with a relevant passage"):
        mine_negatives(Dataset.open(dataset.path), NegativeSettings(split="zero"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_features_of_other_texts_are_refused(tiny_dataset, tiny_features, tmp_path):
    shutil.copytree(tiny_dataset, tmp_path / "data")
    with (tmp_path / "data" / "corpus.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "new", "text": "new"}) + "\n")
    with pytest.raises(ArtifactError, match="these features were made from other texts"):
        mine_negatives(Dataset.open(tmp_path / "data"), NegativeSettings(), tmp_path / "out", features=tiny_features)


def test_without_negatives_the_labels_alone_are_the_examples(dataset, tmp_path):
    (example,) = mine_negatives(dataset, NegativeSettings(negatives=0), tmp_path / "negatives").examples()
    assert (ids(example.positives), example.negatives) == (["a"], ())
