"""Training with layer = linear, from graph to embeddings and explanations."""

import json
from shutil import copytree

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gnnretrieval.data import Dataset
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.evaluation import mean, per_query
from gnnretrieval.graph.growth.add import add_to_graph
from gnnretrieval.graph.growth.additions import read_additions
from gnnretrieval.graph.store import open_graph
from gnnretrieval.index import build_index
from gnnretrieval.index.explain import explainer_of
from gnnretrieval.index.message_explainer import MessagesExplainer
from gnnretrieval.index.search import index_run
from gnnretrieval.nn.label_messages import Heads, Messages, message_vectors, moves
from gnnretrieval.training import TrainSettings, embed_passages, train_gnn
from gnnretrieval.training.gnn import dry_run, ladder, message_memory
from gnnretrieval.training.gnn import messages as module
from gnnretrieval.training.gnn.dry_run import dry_run_lines, rehearse
from gnnretrieval.training.gnn.embeddings import update_embeddings
from gnnretrieval.training.gnn.ladder import MOST_PASSES, Climb, message_graph
from gnnretrieval.training.gnn.messages import TrainedMessages, in_words
from gnnretrieval.training.gnn.model import GNNEncoderModel

BELIEVED = TrainSettings(evidence=1.0)  # ten dev questions are too few to believe anything


@pytest.fixture(scope="module", autouse=True)
def few_steps():
    """Heads of a graph this small are trained after few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ladder, "STEPS", (30, 90))
        patch.setattr(ladder, "ENOUGH", 1)
        patch.setattr(ladder, "LARGE_MEANS", ())  # the label mean alone would answer all
        yield


@pytest.fixture(scope="module")
def model(few_steps, tiny_graph, tiny_dataset, tiny_features, tmp_path_factory):
    out = tmp_path_factory.mktemp("linear") / "model"
    return train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, BELIEVED, out)


@pytest.fixture(scope="module")
def embeddings(model, tiny_graph, tmp_path_factory):
    return embed_passages(model, tiny_graph, tmp_path_factory.mktemp("linear") / "embeddings")


def reciprocal_rank(vectors, dataset, features, split):
    rows = {id_: row for row, id_ in enumerate(dataset.passage_ids)}
    judged = dataset.split(split)
    scores = features.queries[features.rows_of(judged)].astype(np.float32) @ vectors.astype(np.float32).T
    relevant = np.array([rows[next(iter(passages))] for passages in judged.values()])
    return (1 / (1 + (scores > scores[np.arange(len(judged)), relevant, None]).sum(1))).mean()


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({}, 0.16),
        ({"mode": "joint", "layer": "linear"}, 0.16),
        ({"layer": "gat"}, 0.05),
        ({"layer": "mean"}, 0.05),
        ({"mode": "joint"}, 0.05),
        ({"epochs": 3}, 0.05),
        ({"layer": "gat", "evidence": 0.3}, 0.3),
    ],
)
def test_a_gain_counts_from_one_standard_error_where_its_p_is_corrected(given, level):
    """So of the ladder's; that of graph layers, which is not corrected, must be significant."""
    assert TrainSettings.parse(given).evidence == level


def test_linear_is_the_default_and_ranks_unseen_questions_better(model, embeddings, tiny_dataset, tiny_features):
    assert TrainSettings().layer == "linear"
    dataset = Dataset.open(tiny_dataset)
    before = reciprocal_rank(np.asarray(tiny_features.passages), dataset, tiny_features, "test")
    assert reciprocal_rank(np.asarray(embeddings.passages), dataset, tiny_features, "test") > before + 0.1


def test_what_was_trained_is_what_is_loaded_and_embedded(model, embeddings, tiny_graph):
    trained = model.load_messages()
    assert model.meta["messages"] == trained.messages._asdict() != Messages()._asdict()
    assert model.meta["dev"]["kept"].startswith(in_words(trained.messages))
    expected = message_vectors(message_graph(tiny_graph), trained.heads, trained.messages)
    torch.testing.assert_close(torch.from_numpy(np.array(embeddings.passages)).float(), expected, atol=1e-3, rtol=1e-3)


def test_the_log_tells_each_rung_with_its_gain(model):
    rungs = [json.loads(line) for line in (model.path / "log.jsonl").read_text().splitlines()]
    assert rungs[0]["rung"] == "label mean"
    for entry, with_questions in (("messages", False), ("questions", True)):
        kept = [
            rung["messages"] for rung in rungs if rung["kept"] and bool(rung["messages"]["questions"]) == with_questions
        ]
        assert kept[-1] | {"level": model.meta[entry]["level"]} == model.meta[entry]
    assert all({"gain", "error", "dev", "step"} <= rung.keys() for rung in rungs)


def test_the_card_says_what_is_sent_and_which_questions_chose_it(model):
    card = (model.path / "README.md").read_text()
    assert in_words(model.load_messages().messages) in card
    assert "| dev questions | 10 of dev |" in card
    beside = model.meta["dev"]["cross_validated"]
    assert beside
    assert f"| cross-validated training questions beside them | {beside} |" in card


def test_the_choice_with_questions_is_kept_beside_the_one_for_a_vector_a_passage(model):
    weight = model.question_weight
    several, one, dev = model.load_questions(), model.load_messages(), model.meta["dev"]
    assert weight == several.messages.questions > 0
    assert dev["kept"] == in_words(several.messages)
    assert dev["chosen"]["RR@10"] >= dev["one_vector"]["chosen"]["RR@10"] > 0
    assert one.messages.questions == 0
    assert dev["one_vector"]["kept"].startswith(in_words(one.messages))
    assert "gnnretrieval embed --one-vector" in (model.path / "README.md").read_text()


def test_several_vectors_a_passage_have_on_dev_what_training_says(
    model, tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    dataset, said = Dataset.open(tiny_dataset), model.meta["dev"]["chosen"]["RR@10"]
    index = build_index(embed_passages(model, tiny_graph, tmp_path / "several"), tmp_path / "index")
    dev = dataset.split("dev")
    run = index_run(index, [*dev], tiny_features.queries[tiny_features.rows_of(dev)], 10)
    assert mean(per_query(dev, run, ["RR@10"]))["RR@10"] == pytest.approx(said, abs=1e-3)
    assert model.meta["dev"]["cross_validated"]  # which are no dev questions


def test_folded_vectors_are_compared_by_dot_product_where_lengths_tell(model):
    trained = model.load_messages()
    assert trained.messages.steps
    assert not model.similarity.normalize
    for messages in (Messages(prior=0.1), Messages(scaling=0.1)):
        assert not messages.keeps_lengths
    assert Messages(mean=0.3, rounds=1, step_size=0.1).keeps_lengths


def test_a_gain_that_may_be_chance_keeps_the_dual_encoder(
    tiny_graph, tiny_dataset, tiny_features, tmp_path, monkeypatch, said
):
    monkeypatch.setattr(module, "cross_validated", lambda *given, **settings: [])  # ten dev questions alone
    dataset = Dataset.open(tiny_dataset)
    settings = TrainSettings(evidence=1e-6)
    made = train_gnn(tiny_graph, dataset, tiny_features, settings, tmp_path / "model")
    assert made.load_messages().messages == Messages()
    assert load_file(made.path / "model.safetensors") == {}
    assert made.question_weight == 0
    with pytest.raises(ArtifactError, match="kept no vectors of training questions"):
        made.load_questions()
    assert any("the embeddings stay the dual-encoder's" in line for line in said)
    assert made.meta["dev"]["chosen"]["RR@10"] == made.meta["dev"]["dual_encoder"]["RR@10"]
    vectors = embed_passages(made, tiny_graph, tmp_path / "embeddings").passages
    before = np.asarray(tiny_features.passages, dtype=np.float32)
    before /= np.linalg.norm(before, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, before, atol=2e-3)


def test_few_dev_questions_are_joined_by_cross_validated_ones(model):
    assert model.meta["dev"]["queries"] == 10
    assert model.meta["dev"]["cross_validated"] > 10


def test_without_a_dev_split_questions_are_held_out_and_neither_prior_nor_local_scaling_is_chosen(
    tiny_dataset, tiny_features, tiny_graph, tmp_path, monkeypatch
):
    monkeypatch.setattr("gnnretrieval.training.gnn.held_out.dev_split", lambda dataset: None)
    seen = []
    climb = module.climb
    monkeypatch.setattr(module, "climb", lambda measure, **given: seen.append(given) or climb(measure, **given))
    made = train_gnn(tiny_graph, Dataset.open(tiny_dataset), tiny_features, BELIEVED, tmp_path / "model")
    assert seen[0]["priors"] == seen[0]["scalings"] == (0.0,)
    kinds = np.bincount(seen[0]["parts"])
    assert len(kinds) == 3
    assert made.meta["dev"]["cross_validated"] > kinds[2] / 2  # few are held out, so that others join the single ones
    assert made.meta["dev"]["split"] == "held-out training queries"
    assert made.meta["messages"]["prior"] == 0


def test_explanations_give_the_weights_that_make_the_vector(model, tiny_graph):
    trained = model.load_messages()
    explainer = explainer_of(model, tiny_graph)
    assert isinstance(explainer, MessagesExplainer)
    graph = message_graph(tiny_graph)
    row = int(graph.labels[0, 1])
    own = [int(query) for query in graph.labels[graph.labels[:, 1] == row, 0]]
    found = explainer.attention_of_passage(row)
    with tiny_graph.texts() as texts:
        ids = [texts.query(query).id for query in own]
    share = trained.messages.mean / len(own)
    assert [found.weights[id_] for id_ in ids] == pytest.approx([share] * len(own))
    assert found.own == pytest.approx(1 - trained.messages.mean)
    assert all(weight <= 0 for id_, weight in found.weights.items() if id_ not in ids)
    assert explainer.explain(row).gate == ""
    assert all(neighbor.attention for neighbor in explainer.explain(row, most=1000).neighbors)


def test_a_question_s_weight_is_its_share_of_the_mean_and_its_pulls(tiny_graph):
    messages = Messages(mean=0.3, passes=3, update_size=0.2)
    graph, explainer = message_graph(tiny_graph), MessagesExplainer(tiny_graph, TrainedMessages(None, messages))
    pulled = moves(graph, None, messages).pulls
    row = int(graph.labels[pulled.argmax(), 1])
    at = graph.labels[:, 1] == row
    with tiny_graph.texts() as texts:
        ids = [texts.query(query).id for query in graph.labels[at, 0].tolist()]
    weights = explainer.attention_of_passage(row).weights
    assert [weights[id_] for id_ in ids] == pytest.approx((0.3 / len(ids) + pulled[at]).tolist())
    assert pulled.max() > 0.05


def test_changed_embeddings_are_those_of_a_pass_over_all(model, tiny_graph, tiny_dataset, tiny_features, tmp_path):
    graph, dataset = tmp_path / "graph", Dataset.open(tiny_dataset)
    copytree(tiny_graph.path, graph)
    old = np.array(embed_passages(model, open_graph(graph), tmp_path / "embeddings").passages)
    judged = {query: next(iter(passages)) for query, passages in dataset.split("dev").items()}
    records = [json.dumps({"_id": f"new-{query}", "text": f"a new {query}"}) for query in judged]
    (tmp_path / "queries.jsonl").write_text("\n".join(records) + "\n")
    rows = [f"new-{query}\t{passage}\t1" for query, passage in judged.items()]
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows) + "\n")
    np.save(tmp_path / "queries.npy", tiny_features.queries[tiny_features.rows_of(judged)].astype(np.float32))
    files = {"queries": "queries.jsonl", "qrels": "qrels.tsv", "query_vectors": "queries.npy"}
    additions = read_additions(open_graph(graph), **{name: tmp_path / file for name, file in files.items()})
    add_to_graph(graph, additions)
    updated = update_embeddings(model, open_graph(graph), tmp_path / "embeddings")
    anew = embed_passages(model, open_graph(graph), tmp_path / "anew")
    np.testing.assert_array_equal(updated.passages, anew.passages)
    assert not np.array_equal(updated.passages, old)


def test_a_graph_that_does_not_fit_into_memory_is_refused(tiny_graph, tiny_dataset, tiny_features, monkeypatch):
    monkeypatch.setattr(message_memory, "_ARRAYS", 1 << 60)
    with pytest.raises(GnnRetrievalError, match=r"Give fewer \(--passages\)"):
        rehearse(tiny_graph, Dataset.open(tiny_dataset), tiny_features, BELIEVED)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (Messages(300), "head of 300 steps alone, because messages along the graph's edges gained no more than chance"),
        (Messages(300, 0.2, trained_mean=0.2), "head of 300 steps trained with label mean 0.2, label mean 0.2"),
        (
            Messages(300, sides="apart"),
            "separate heads of 300 steps alone, because messages along the graph's edges gained no more than chance",
        ),
        (Messages(prior=0.03), "prior +0.03"),
        (Messages(300, passes=4, update_size=0.05), "head of 300 steps, 4 passes of updates by 0.05"),
        (Messages(), "the dual-encoder"),
    ],
)
def test_what_is_kept_says_where_the_graph_added_nothing(messages, said):
    climb = Climb(messages, 0.5, 0.4, 0.1, {}, 0.001, [])
    kept = module.MessagesTraining(climb, 0.05, None, TrainedMessages(None, messages), 0.5, 0.4, 0, 9).kept
    assert kept == said


@pytest.mark.parametrize("messages", [Messages(), Messages(steps=5, mean=0.1), Messages(steps=5, sides="apart")])
def test_heads_are_loaded_as_they_were_saved(messages, tmp_path):
    queries, passages = torch.randn(2, 4, 4)
    separate = Heads(queries, passages)
    heads = None if not messages.steps else Heads.shared(queries) if messages.sides == "both" else separate
    TrainedMessages(heads, messages).save(tmp_path / "model.safetensors")
    found = TrainedMessages.load(tmp_path / "model.safetensors", messages)
    assert found.messages == messages
    if heads is None:
        assert found.heads is None
    else:
        assert all(map(torch.equal, found.heads, heads))


def test_a_model_from_before_separate_heads_has_a_shared_one(model):
    messages = {name: value for name, value in model.meta["messages"].items() if name != "sides"}
    save_file({"head": torch.eye(4)}, model.path.parent / "model.safetensors")
    old = GNNEncoderModel(model.path.parent, {**model.meta, "messages": messages | {"steps": 5}})
    found = old.load_messages()
    assert found.messages.sides == "both"
    assert torch.equal(found.heads.queries, torch.eye(4))
    assert torch.equal(found.heads.passages, torch.eye(4))


def test_damaged_weights_are_told(model, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match="cannot be loaded"):
        TrainedMessages.load(tmp_path / "model.safetensors", Messages(steps=100))


def test_a_dry_run_counts_the_steps_of_every_fold(tiny_graph, tiny_dataset, tiny_features):
    found = rehearse(tiny_graph, Dataset.open(tiny_dataset), tiny_features, BELIEVED)
    assert (found["queries"], found["dev_queries"], found["steps"]) == (60, 10, 4 * (120 + 4 * (22 + 68)))
    assert dry_run_lines(found, BELIEVED)[-1] == "a dry run: nothing was made"


def test_a_dry_run_counts_the_passes_of_updates(tiny_graph, tiny_dataset, tiny_features, monkeypatch):
    monkeypatch.setattr(dry_run, "_seconds", lambda work: float("updated" in work.__code__.co_names))
    found = rehearse(tiny_graph, Dataset.open(tiny_dataset), tiny_features, BELIEVED)
    assert found["hours"] * 3600 == pytest.approx((1 + 4) * 2 * MOST_PASSES)  # folds, both ladders
    part = TrainSettings.parse({**BELIEVED.model_dump(), "passages": 30})
    assert rehearse(tiny_graph, Dataset.open(tiny_dataset), tiny_features, part)["hours"] == 0


@pytest.mark.parametrize(
    ("settings", "layer"),
    [({}, "linear"), ({"k": 3, "seed": 2}, "linear"), ({"epochs": 4}, "gat"), ({"mode": "joint"}, "gat")],
)
def test_a_setting_of_attention_asks_for_attention(settings, layer):
    assert TrainSettings.parse(settings).layer == layer


@pytest.mark.parametrize(("settings", "name"), [({"epochs": 4}, "epochs"), ({"encoder": {"heads": 2}}, "heads")])
def test_linear_refuses_settings_of_attention(settings, name):
    with pytest.raises(GnnRetrievalError, match=f"settings: {name}: not for layer = linear"):
        TrainSettings.parse({"layer": "linear", **settings})


def test_a_linear_model_is_no_start(model, tiny_graph, tiny_dataset, tiny_features, tmp_path):
    with pytest.raises(GnnRetrievalError, match="no graph layers to start from"):
        train_gnn(
            tiny_graph,
            Dataset.open(tiny_dataset),
            tiny_features,
            TrainSettings(layer="gat"),
            tmp_path / "model",
            start=model,
        )
