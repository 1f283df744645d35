import json
import shutil

import numpy as np
import pytest
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.training.encoder.dual_towers import Start, make_towers
from gnnretrieval.training.encoder.pair_data import Texts
from gnnretrieval.training.encoder.sentence_task import SentenceDev, SentenceTask, holding, most_overlap
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder

SETTINGS = DualEncoderTrainSettings(
    shared=True, epochs=2, batch_size=8, learning_rate=1e-3, dropout=0.0, precision="float32", hard_negatives=1
)
TEXTS = Texts(
    {"q1": "bada?", "q2": "gogo?", "q3": "kobe?"},
    {
        "p1": "Bada dada. Gogo lumi nari. Bada pozu.",
        "p2": "Kobe sefi.",
        "p3": "Tuva zire. Dada kobe. Nari sefi. Lumi bada.",
    },
)
EXAMPLES = [
    Example("q1", (Candidate("p1", "label"),), (Candidate("p3", "bm25"),)),
    Example("q2", (Candidate("p1", "label"),), (Candidate("p3", "bm25"),)),
    Example("q3", (Candidate("p2", "label"),), (Candidate("p3", "bm25"),)),
]
ANSWERS = {"q1": ["DADA"], "q2": ["lumi nari"], "q3": ["sefi"]}


def task(checkpoint, examples=EXAMPLES, answers=ANSWERS, **settings):
    changed = SETTINGS.model_copy(update=settings)
    start = Start.of(EncoderSettings(checkpoint=str(checkpoint), sentences="token"))
    towers = make_towers(
        start, shared=changed.shared, device=torch.device("cpu"), seed=changed.seed, dropout=changed.dropout
    )
    return SentenceTask(examples, TEXTS, answers, towers, start.similarity, changed, None)


def test_the_sentence_with_the_answer_is_the_positive(tiny_checkpoint):
    found = task(tiny_checkpoint).answer_sentences
    assert found.of == {("q1", "p1"): {0}, ("q2", "p1"): {1}, ("q3", "p2"): {0}}
    assert (found.skipped, found.by_overlap) == (0, 0)


def test_every_answers_case_and_every_sentence_count():
    assert holding(["In May.", "Nothing.", "may be"], ["MAY"]) == {0, 2}
    assert holding(["In May."], [" ", ""]) == frozenset()
    assert holding(["It was founded in 1910.", "There are 10 teams."], ["10"]) == {1}


def test_a_batch_has_the_answer_one_other_sentence_of_the_passage_and_one_of_a_negative(tiny_checkpoint):
    made = task(tiny_checkpoint, examples=EXAMPLES[1:2])
    for number in range(5):
        batch = made.batch(number, 0)
        sentences = {}
        for item in batch.items[1:]:
            ids = {tuple(int(id_) for id_ in tokens.ids): id_ for id_, tokens in made.tokens.items()}
            passage = ids[item.ids]
            starts = [int(start) for start in made.tokens[passage].starts]
            sentences[passage] = {starts.index(start) for start, _ in item.spans}
        assert 1 in sentences["p1"]
        assert len(sentences["p1"]) == 2
        assert len(sentences["p3"]) == 1


def test_without_another_sentence_one_more_of_the_negative_stands_in(tiny_checkpoint):
    batch = task(tiny_checkpoint, examples=EXAMPLES[2:]).batch(0, 0)
    assert [len(item.spans) for item in batch.items[1:]] == [1, 2]


def test_in_passage_negatives_can_be_left_out(tiny_checkpoint):
    batch = task(tiny_checkpoint, examples=EXAMPLES[1:2], in_passage=0).batch(0, 0)
    assert [len(item.spans) for item in batch.items[1:]] == [1, 1]


def test_another_questions_sentence_of_the_same_passage_is_a_negative_unless_it_has_the_answer(tiny_checkpoint):
    made = task(tiny_checkpoint, examples=EXAMPLES[:2])
    batch = made.batch(0, 0)
    loss = batch.loss
    columns = wanted_columns(made, batch, queries=2)
    row = {query: number for number, query in enumerate(asked(made, batch, 2))}
    assert not loss.relevant[row["q1"], columns["p1", 1]]  # q2's answer: DCSR's point
    assert not loss.relevant[row["q2"], columns["p1", 0]]
    assert loss.relevant[row["q1"], columns["p1", 0]]


def asked(made, batch, count):
    texts = {tuple(made.towers["query"].tokens([text])[0]): id_ for id_, text in TEXTS.queries.items()}
    return [texts[item.ids] for item in batch.items[:count]]


def wanted_columns(made, batch, queries):
    ids = {tuple(int(id_) for id_ in tokens.ids): id_ for id_, tokens in made.tokens.items()}
    columns = {}
    for item in batch.items[queries:]:
        starts = [int(start) for start in made.tokens[ids[item.ids]].starts]
        for start, _ in item.spans:
            columns[ids[item.ids], starts.index(start)] = len(columns)
    return columns


def test_a_passage_without_the_answer_is_skipped_or_its_most_similar_sentence_taken(tiny_checkpoint):
    answers = {**ANSWERS, "q2": ["nowhere"]}
    assert task(tiny_checkpoint, answers=answers).answer_sentences.skipped == 1
    chosen = task(tiny_checkpoint, answers=answers, without_answer="overlap").answer_sentences
    assert (chosen.of["q2", "p1"], chosen.by_overlap) == ({1}, 1)
    assert most_overlap("gogo bada", ["lumi", "gogo", "bada gogo"]) == 2


def test_a_positive_without_an_answer_is_no_negative_either(tiny_checkpoint):
    two = EXAMPLES[0]._replace(positives=(*EXAMPLES[0].positives, Candidate("p2", "label")))
    made = task(tiny_checkpoint, examples=[two, EXAMPLES[2]])
    assert made.answer_sentences.skipped == 1  # dada is nowhere in p2
    batch = made.batch(0, 0)
    row = asked(made, batch, 2).index("q1")
    assert batch.loss.relevant[row, wanted_columns(made, batch, queries=2)["p2", 0]]


def test_no_answer_anywhere_is_said(tiny_checkpoint):
    with pytest.raises(GnnRetrievalError, match=r"metadata\.answers.*without_answer = overlap"):
        task(tiny_checkpoint, answers={})


def test_dev_ranks_passages_by_has_ans():
    dev = SentenceDev.__new__(SentenceDev)
    dev._counts, dev._mean = torch.tensor([2, 1]), 1.5
    dev.similarity = type("S", (), {"scale": 1.0})
    # One query; sentences of passage 0 score ln 3 and ln 3, of passage 1 ln 4: p = 0.3, 0.3 and 0.4.
    scores = dev.scores(
        slice(1), torch.ones(1, 1), torch.tensor([[np.log(3)], [np.log(3)], [np.log(4)]], dtype=torch.float32)
    )
    has_ans = 1 - torch.exp(-scores)
    torch.testing.assert_close(has_ans, torch.tensor([[1 - 0.7 * 0.7, 0.4]], dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("sentences", ["token", "mean"])
def test_a_trained_sentence_encoder_opens_with_the_vectors_it_was_measured_with(
    tiny_dataset, tiny_checkpoint, tmp_path, sentences
):
    place = tmp_path / "dataset"
    shutil.copytree(tiny_dataset, place)
    with_answers(place)
    made = train_dual_encoder(
        Dataset.open(place),
        [],
        EncoderSettings(checkpoint=str(tiny_checkpoint), sentences=sentences),
        SETTINGS.model_copy(update={"hard_negatives": 0}),
        tmp_path / "encoder",
    )
    history = [json.loads(line) for line in (made.path / "log.jsonl").read_text().splitlines()]
    dev = [record["dev"]["RR@10"] for record in history if "dev" in record]
    assert max(dev) > dev[0]
    encoder = DualEncoder(EncoderSettings(checkpoint=str(made.path), precision="float32"))
    assert encoder.settings.sentences == sentences
    texts = ["Bada dada. Gogo lumi nari. Bada pozu.", "Kobe sefi."]
    vectors, counts, *_ = encoder.encode_sentences(texts)
    assert counts.tolist() == [3, 1]
    if sentences == "token":  # in sentence-transformers: the token embeddings at <sent>
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(made.path / "passage"), device="cpu")
        marked = "<sent> Bada dada. <sent> Gogo lumi nari. <sent> Bada pozu."
        ids = model.tokenizer(marked)["input_ids"]
        states = model.encode(marked, output_value="token_embeddings", convert_to_numpy=True)
        sent = model.tokenizer.convert_tokens_to_ids("<sent>")
        theirs = np.array([np.asarray(states)[row] for row, id_ in enumerate(ids) if id_ == sent])
        theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
        np.testing.assert_allclose(vectors[:3], theirs, atol=2e-6)


def with_answers(place):
    """Give each query of a dataset its first topical word as its answer, and passages two sentences."""
    passages = [json.loads(line) for line in (place / "corpus.jsonl").read_text().splitlines()]
    for passage in passages:
        words = passage["text"].rstrip(".").split()
        passage["text"] = " ".join(words[:5]).capitalize() + ". " + " ".join(words[5:]).capitalize() + "."
    text_of = {passage["_id"]: passage["text"].casefold() for passage in passages}
    label = {}
    for file in (place / "qrels").glob("*.tsv"):
        for line in file.read_text().splitlines()[1:]:
            query, passage, score = line.split("\t")
            if score == "1":
                label.setdefault(query, passage)
    queries = [json.loads(line) for line in (place / "queries.jsonl").read_text().splitlines()]
    for query in queries:
        words = [word.strip("?") for word in query["text"].split()]
        answers = [word for word in words if word in text_of[label[query["_id"]]]]
        query["metadata"] = {"answers": answers}
    for name, records in (("corpus", passages), ("queries", queries)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
