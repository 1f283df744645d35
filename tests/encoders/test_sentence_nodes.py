"""Passages that are sentences, read with the others of their passage."""

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.data.beir import write_passages, write_qrels, write_queries
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.data.sentences import SentencePassages, make_sentence_dataset
from gnnretrieval.encoders import DualEncoder, encode_dataset
from gnnretrieval.encoders.sentence_nodes import encode_sentence_passages
from gnnretrieval.errors import GnnRetrievalError


@pytest.fixture(scope="module")
def settings(tiny_settings):
    return tiny_settings.model_copy(update={"sentences": "mean", "window": 4})


@pytest.fixture(scope="module")
def encoder(settings) -> DualEncoder:
    return DualEncoder(settings)


def test_a_sentences_vector_is_that_of_its_passage_read_by_sentences(encoder):
    groups = [SentencePassages("", ["A b.", "C d e!", "F"]), SentencePassages("G h", ["I j.", "K l."])]
    vectors, alone = encode_sentence_passages(encoder, groups)
    expected = encoder.encode_sentences(["A b. C d e! F", "G h. I j. K l."])
    assert expected.counts.tolist() == [3, 3]
    assert np.array_equal(vectors, expected.vectors[[0, 1, 2, 4, 5]])  # without the title's
    assert alone == 0


def test_sentences_beyond_the_limit_are_encoded_alone_after_their_title(settings):
    encoder = DualEncoder(settings.model_copy(update={"max_tokens": 9}))  # [CLS] t ##u . a b . c [SEP]
    vectors, alone = encode_sentence_passages(encoder, [SentencePassages("Tu", ["A b.", "C d e!", "F g.", "H"])])
    assert alone == 2
    expected = encoder.encode_sentences(["Tu. A b. C d e! F g. H"]).vectors[1:]
    assert np.array_equal(vectors[:2], expected)
    assert np.array_equal(vectors[2:], encoder.encode(["Tu. F g.", "Tu. H"], "passage"))


def test_a_title_alone_and_one_that_leaves_no_room_have_vectors(settings):
    encoder = DualEncoder(settings.model_copy(update={"max_tokens": 5}))
    groups = [SentencePassages("T u", [""]), SentencePassages("a b c d e f", ["G.", "H."])]
    vectors, alone = encode_sentence_passages(encoder, groups)
    assert alone == 3
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_an_encoder_of_whole_passages_is_refused(tiny_settings):
    with pytest.raises(GnnRetrievalError, match="sentences = token or mean"):
        encode_sentence_passages(DualEncoder(tiny_settings), [SentencePassages("", ["a"])])


@pytest.fixture(scope="module")
def nodes(tmp_path_factory) -> Dataset:
    """The sentences of five passages; the last one's are more than fit."""
    place = tmp_path_factory.mktemp("nodes")
    (place / "whole").mkdir()
    texts = [
        "A b. C d e! F",
        "G h.",
        "I j. K l. M n.",
        "O p. Q r.",
        " ".join(f"S t {letter} v w." for letter in "bdfghijklmnpqr"),
    ]
    passages = [Passage(f"p{row}", "Title" if row % 2 else "", text) for row, text in enumerate(texts)]
    write_passages(place / "whole" / "corpus.jsonl", ((passage, {}) for passage in passages))
    write_queries(place / "whole" / "queries.jsonl", [(Query("q", "a question"), {})])
    write_qrels(place / "whole" / "qrels" / "test.tsv", [Qrel("q", "p0", 1)])
    make_sentence_dataset(Dataset.open(place / "whole"), place / "sentences")
    return Dataset.open(place / "sentences")


def test_features_of_a_dataset_of_sentences_have_a_contextual_vector_each(nodes, settings, tmp_path, said):
    features = encode_dataset(nodes, settings, tmp_path / "features")
    made = DualEncoder(settings).encode_sentences(["A b. C d e! F", "Title. G h."])
    assert features.passages.shape == (23, 32)
    assert np.array_equal(features.passages[:3], made.vectors[:3].astype(np.float16))
    assert np.array_equal(features.passages[3], made.vectors[4].astype(np.float16))
    assert not features.has_sentences
    assert features.meta["sentences_alone"] == 3  # of 14, eleven have one of the 62 tokens, 6 each
    assert any("3 beyond the limit of tokens were encoded alone" in line for line in said)


def test_they_do_not_depend_on_the_window(nodes, settings, tmp_path):
    one = encode_dataset(nodes, settings, tmp_path / "one")
    other = encode_dataset(nodes, settings.model_copy(update={"window": 100}), tmp_path / "other")
    assert one.meta["files"] == other.meta["files"]


@pytest.mark.parametrize("fail_at", [0, 1, 2])
def test_interrupted_they_go_on_to_the_same_bytes(nodes, settings, tmp_path, monkeypatch, fail_at):
    from gnnretrieval.encoders import feature_rows

    whole = encode_dataset(nodes, settings, tmp_path / "whole")
    encode, asked = feature_rows.encode_sentence_passages, []

    def failing(encoder, groups):
        if len(asked) == fail_at:
            raise KeyboardInterrupt
        asked.append([len(group.texts) for group in groups])
        return encode(encoder, groups)

    with monkeypatch.context() as patch:
        patch.setattr(feature_rows, "encode_sentence_passages", failing)
        with pytest.raises(KeyboardInterrupt):
            encode_dataset(nodes, settings, tmp_path / "broken")
    resumed = encode_dataset(nodes, settings, tmp_path / "broken")
    assert asked == [[3, 1], [3, 2], [14]][:fail_at]
    assert resumed.meta["files"] == whole.meta["files"]
    assert resumed.meta["sentences_alone"] == whole.meta["sentences_alone"]


def test_read_whole_they_are_passages_like_any_other(nodes, tiny_settings, tmp_path):
    features = encode_dataset(nodes, tiny_settings, tmp_path / "features")
    expected = DualEncoder(tiny_settings).encode(["A b.", "C d e!"], "passage")
    assert np.array_equal(features.passages[:2], expected.astype(np.float16))
    assert "sentences_alone" not in features.meta
