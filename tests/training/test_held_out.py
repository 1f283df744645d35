import copy
import json
import shutil
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from train_and_dev import with_training_queries_in_dev

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.features import Features, encode_dataset
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.feedback import SimulationSettings, import_feedback, simulate_log
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.graph.store import Graph
from gnnretrieval.nn.label_messages import Messages
from gnnretrieval.training.gnn import held_out, messages
from gnnretrieval.training.gnn.head import train_heads
from gnnretrieval.training.gnn.held_out import BY_PASSAGE, BY_QUESTION, BY_TOPIC, held_out_queries
from gnnretrieval.training.gnn.ladder import Climb, message_graph
from gnnretrieval.training.gnn.settings import TrainSettings
from gnnretrieval.training.gnn.train import train_gnn


def without_dev(directory: Path, target: Path) -> Path:
    shutil.copytree(directory, target)
    (target / "qrels" / "dev.tsv").unlink()
    return target


@pytest.fixture
def no_dev(tiny_dataset: Path, tiny_settings: EncoderSettings, tmp_path: Path) -> tuple[Dataset, Features, Graph]:
    dataset = Dataset.open(without_dev(tiny_dataset, tmp_path / "data"))
    features = encode_dataset(dataset, tiny_settings, tmp_path / "features")
    return dataset, features, build_graph(dataset, features, GraphSettings(k=3), tmp_path / "graph")


def test_the_dev_split_is_what_is_chosen_by(tiny_dataset: Path, tiny_features: Features, tiny_graph: Graph) -> None:
    dataset = Dataset.open(tiny_dataset)
    held_out = held_out_queries(tiny_graph, dataset, tiny_features, seed=0)
    judged = dataset.split("dev")
    assert held_out.name == "dev"
    assert held_out.hidden is None
    assert [[dataset.passage_ids[row] for row in rows] for rows in held_out.relevant] == [
        list(j) for j in judged.values()
    ]
    np.testing.assert_array_equal(held_out.queries, tiny_features.queries[tiny_features.rows_of(judged)])


def test_of_many_training_queries_no_more_are_held_out_than_decide(
    no_dev: tuple[Dataset, Features, Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, features, graph = no_dev
    monkeypatch.setattr(held_out, "MOST_HELD_OUT", 2)
    few = held_out_queries(graph, dataset, features, seed=0)
    monkeypatch.undo()
    more = held_out_queries(graph, dataset, features, seed=0)
    assert 2 <= len(few.relevant) < len(more.relevant)


def test_in_a_dataset_from_event_logs_dev_and_training_queries_count_by_their_clicks(
    tiny_dataset: Path,
    tiny_settings: EncoderSettings,
    tiny_graph: Graph,
    tiny_features: Features,
    tmp_path: Path,
    said: list[str],
) -> None:
    log = simulate_log(Dataset.open(tiny_dataset), tmp_path / "log.jsonl", SimulationSettings(impressions=600))
    dev, test = map(datetime.fromisoformat, (log.dev_from, log.test_from))
    made = import_feedback([tmp_path / "log.jsonl"], tiny_dataset, tmp_path / "data", dev_from=dev, test_from=test)
    dataset = Dataset.open(made.path)
    features = encode_dataset(dataset, tiny_settings, tmp_path / "features")
    store = build_graph(dataset, features, GraphSettings(k=3), tmp_path / "graph")
    held_out = held_out_queries(store, dataset, features, seed=0)
    assert held_out.clicked is not None
    assert held_out.clicked.relevant == held_out.relevant
    assert held_out.clicked.weights.max() > 1
    assert held_out.clicked_in_graph is not None
    pairs = [(query, row) for query, rows in enumerate(held_out.clicked_in_graph.relevant) for row in rows]
    assert sorted(pairs) == sorted(map(tuple, store.labels.tolist()))
    plain = held_out_queries(tiny_graph, Dataset.open(tiny_dataset), tiny_features, seed=0)
    assert plain.clicked is plain.clicked_in_graph is None

    before = []
    for settings in (TrainSettings(), TrainSettings.parse({"layer": "gat", "epochs": 1})):
        said.clear()
        model = train_gnn(store, dataset, features, settings, tmp_path / settings.layer)
        assert any(line.startswith("labels are clicks: ") for line in said)
        assert model.meta["dev"]["by_clicks"]
        card = (model.path / "README.md").read_text(encoding="utf-8")
        assert "| passages ranked for them | those shown; weighted by the chance of a label |" in card
        before.append(model.meta["dev"]["dual_encoder"]["RR@10"])
    assert before[1] == pytest.approx(before[0])  # both rank the same passages, by the same weights


def test_without_a_dev_split_all_questions_of_some_passages_are_held_out(
    no_dev: tuple[Dataset, Features, Graph],
) -> None:
    dataset, features, store = no_dev
    held_out = held_out_queries(store, dataset, features, seed=0)
    assert held_out.hidden is not None
    rows = np.flatnonzero(held_out.hidden)
    assert 0 < len(rows) < 0.35 * store.num_queries
    np.testing.assert_array_equal(held_out.queries, store.query_features[rows])
    for query, relevant in zip(rows.tolist(), held_out.relevant, strict=True):
        assert relevant == store.labels[store.labels[:, 0] == query, 1].tolist()
    pairs = zip(held_out.relevant, held_out.parts.tolist(), strict=True)
    passages = {passage for relevant, kind in pairs if kind != BY_QUESTION for passage in relevant}
    for passage in passages:  # only strangers' questions point to it
        assert held_out.hidden[store.labels[store.labels[:, 1] == passage, 0]].all()


def test_training_without_a_dev_split_says_what_it_chose_by_and_is_repeatable(
    no_dev: tuple[Dataset, Features, Graph], tmp_path: Path
) -> None:
    dataset, features, store = no_dev
    settings = TrainSettings(epochs=2, batch_size=8)
    model = train_gnn(store, dataset, features, settings, tmp_path / "model")
    assert model.meta["dev"]["split"] == "held-out training queries"
    again = train_gnn(store, dataset, features, settings, tmp_path / "again")
    assert model.hash == again.hash


def test_too_few_questions_to_hold_out_are_said(
    tiny_dataset: Path, tiny_settings: EncoderSettings, tmp_path: Path
) -> None:
    place = without_dev(tiny_dataset, tmp_path / "data")
    lines = (place / "qrels" / "train.tsv").read_text().splitlines()
    (place / "qrels" / "train.tsv").write_text("\n".join(lines[:2]) + "\n")
    dataset = Dataset.open(place)
    features = encode_dataset(dataset, tiny_settings, tmp_path / "features")
    store = build_graph(dataset, features, GraphSettings(k=3), tmp_path / "graph")
    with pytest.raises(GnnRetrievalError, match="no dev split, and too few training queries"):
        held_out_queries(store, dataset, features, seed=0)


def test_a_query_of_both_train_and_dev_is_kept_out_of_training(
    tiny_dataset: Path, tiny_settings: EncoderSettings, tmp_path: Path
) -> None:
    store, dataset, features = with_training_queries_in_dev(tiny_dataset, tiny_settings, tmp_path)
    held_out = held_out_queries(store, dataset, features, seed=0)
    assert held_out.hidden is not None
    with store.texts() as texts:
        assert [texts.query(int(row)).id for row in np.flatnonzero(held_out.hidden)] == ["train-07", "train-08"]


def test_a_head_does_not_learn_from_a_query_of_both_train_and_dev_after_the_choice_either(
    tiny_dataset: Path, tiny_settings: EncoderSettings, tmp_path: Path, monkeypatch
) -> None:
    store, dataset, features = with_training_queries_in_dev(tiny_dataset, tiny_settings, tmp_path)
    head = Messages(20, sides="both")
    monkeypatch.setattr(messages, "climb", lambda measure, **given: Climb(head, 1.0, 0.5, 0.5, {}, 0.001, []))
    model = train_gnn(store, dataset, features, TrainSettings.parse({"layer": "linear"}), tmp_path / "model")
    heads = model.load_messages().heads
    graph = message_graph(store, np.isin(store.texts().query_ids(), ["train-07", "train-08"]))
    assert heads is not None
    assert torch.equal(heads.queries, train_heads(graph, 20).queries)
    assert model.meta["queries"] == {"trained_on": 58, "labelled": 58}


def test_a_graph_built_from_the_dev_split_is_refused(
    tiny_dataset: Path, tiny_features: Features, tmp_path: Path
) -> None:
    dataset = Dataset.open(tiny_dataset)
    store = build_graph(dataset, tiny_features, GraphSettings(k=3, split="dev"), tmp_path / "graph")
    with pytest.raises(GnnRetrievalError, match="built from the queries of split 'dev'"):
        held_out_queries(store, dataset, tiny_features, seed=0)


def test_copies_of_a_single_held_out_question_are_hidden_and_not_judged(
    tiny_dataset: Path, tiny_settings: EncoderSettings, tmp_path: Path
) -> None:
    """Each training question is there twice, the second time for another passage."""
    place = without_dev(tiny_dataset, tmp_path / "data")
    queries = [json.loads(line) for line in (place / "queries.jsonl").read_text().splitlines()]
    copies = [{**query, "_id": f"copy-{query['_id']}"} for query in queries if query["_id"].startswith("train")]
    (place / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries + copies))
    train = place / "qrels" / "train.tsv"
    header, *lines = train.read_text().splitlines(keepends=True)
    passages = [line.split("\t")[1] for line in lines]
    others = [
        f"copy-{line.split(chr(9))[0]}\t{other}\t1\n"
        for line, other in zip(lines, passages[7:] + passages[:7], strict=True)
    ]
    train.write_text(header + "".join(lines + others))
    dataset = Dataset.open(place)
    features = encode_dataset(dataset, tiny_settings, tmp_path / "features")
    store = build_graph(dataset, features, GraphSettings(k=3), tmp_path / "graph")
    found = held_out_queries(store, dataset, features, seed=0)
    assert found.hidden is not None
    with store.texts() as texts:
        visible = set(texts.texts_of_queries(np.flatnonzero(~found.hidden).tolist()))
    single = [text for text, kind in zip(found.texts, found.parts.tolist(), strict=True) if kind == BY_QUESTION]
    assert len(single) == len(set(single)) > 0
    assert not visible & set(single)
    assert len(found.texts) < int(found.hidden.sum())  # copies are hidden, but not judged


def test_held_out_topics_are_passages_with_those_most_like_them(tiny_graph: Graph, monkeypatch) -> None:
    """A hundred times as many passages, in tight clusters: a topic takes all questions of a cluster."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, tiny_graph.dimension))
    vectors = np.repeat(centres, 10, axis=0) + rng.normal(0, 0.01, (200, tiny_graph.dimension))
    store = copy.copy(tiny_graph)
    store.meta = {**tiny_graph.meta, "num_passages": 200}
    store.__dict__["passage_features"] = vectors.astype(np.float16)
    monkeypatch.setattr(held_out, "TOPIC", 2)  # a hundredth of 200 passages is no more
    labels = np.stack([np.arange(200), np.arange(200)], axis=1)  # a question a passage
    chosen = held_out._of_topics(store, labels, 200, rng)
    assert 17 <= chosen.sum() <= 18  # a twelfth
    per_cluster = chosen.reshape(20, 10).sum(1)
    assert per_cluster[per_cluster > 0].min() >= 2  # never one passage alone


def test_without_a_dev_split_three_kinds_of_question_are_held_out(no_dev: tuple[Dataset, Features, Graph]) -> None:
    dataset, features, store = no_dev
    found = held_out_queries(store, dataset, features, seed=0)
    assert found.hidden is not None
    assert set(found.parts.tolist()) == {BY_PASSAGE, BY_TOPIC, BY_QUESTION}
    assert len(found.parts) == len(found.relevant) == len(found.texts) == int(found.hidden.sum())
    with store.texts() as texts:
        assert found.texts == texts.texts_of_queries(np.flatnonzero(found.hidden).tolist())
