import json
import math
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import bm25s
import numpy as np
import pytest
import Stemmer

from gnnretrieval.encoders import BM25, postings
from gnnretrieval.encoders.bm25 import count_words
from gnnretrieval.errors import ArtifactError, InputError

TEXTS = ["red apples and green apples", "a green tree", "the red car drives", "blue water", "the tree of red apples"]


@pytest.fixture(scope="module")
def bm25() -> BM25:
    return BM25(TEXTS)


def test_a_score_by_hand(bm25):
    """Lucene's BM25 with k1 = 1.5 and b = 0.75, without stop words: "tree" is in 2 of 5 texts of 13 words in all."""
    idf = math.log(1 + (5 - 2 + 0.5) / (2 + 0.5))
    for row, length in ((1, 2), (4, 3)):
        expected = idf * 1 / (1 + 1.5 * (1 - 0.75 + 0.75 * length / (14 / 5)))
        assert bm25.scores("tree")[row] == pytest.approx(expected, rel=1e-5)
    assert bm25.scores("tree")[[0, 2, 3]].tolist() == [0, 0, 0]


def test_k1_and_b_saturate_a_count_and_weigh_a_length():
    """The term is in 2 of 5 texts, of 4 and 3 words where 2.8 is the mean, and twice in the first of them."""
    bm25 = BM25(TEXTS, k1=0.9, b=0.4)
    idf = math.log(1 + (5 - 2 + 0.5) / (2 + 0.5))
    for row, times, length in ((0, 2, 4), (4, 1, 3)):
        expected = idf * times / (times + 0.9 * (1 - 0.4 + 0.4 * length / 2.8))
        assert bm25.scores("apple")[row] == pytest.approx(expected, rel=1e-5)
    assert BM25(TEXTS, k1=0).scores("apple")[[0, 4]].tolist() == pytest.approx([idf, idf])


@pytest.mark.parametrize("wrong", [{"k1": -0.1}, {"k1": math.inf}, {"b": 1.1}, {"b": math.nan}])
def test_a_k1_or_b_out_of_range_is_refused(wrong):
    with pytest.raises(InputError, match="k1 of 0 or more"):
        BM25(TEXTS, **wrong)


def test_fields_are_added_by_their_weights():
    """The term counts 1 + 0.5 * 2 times in the first passage, whose length is 2 + 0.5 * 2; once in the second of 1."""
    with postings.Counts(fields=2) as counts:
        count_words(counts, ["red car", "car"], ["car car", ""])
        bm25, first = BM25.of_counts(counts, (1.0, 0.5)), BM25.of_counts(counts, (1.0, 0.0), k1=0.9)
    idf, mean = math.log(1 + 0.5 / 2.5), (3 + 1) / 2
    expected = [idf * 2 / (2 + 1.5 * (0.25 + 0.75 * 3 / mean)), idf * 1 / (1 + 1.5 * (0.25 + 0.75 * 1 / mean))]
    assert bm25.scores("car").tolist() == pytest.approx(expected)
    assert first.scores("red car").tolist() == BM25(["red car", "car"], k1=0.9).scores("red car").tolist()


def test_a_weighted_field_is_a_repeated_text_and_one_of_weight_zero_is_none(small_pieces):
    texts, more = generated(300), generated(600)[300:]
    with postings.Counts(fields=2) as counts:
        count_words(counts, iter(texts), iter(more))
        both, alone = (BM25.of_counts(counts, weights) for weights in ((1.0, 2.0), (1.0, 0.0)))
    repeated, plain = BM25([f"{text} {extra} {extra}" for text, extra in zip(texts, more, strict=True)]), BM25(texts)
    assert (both.num_postings, alone.num_postings) == (repeated.num_postings, plain.num_postings)
    for query in QUERIES:
        assert both.scores(query).tolist() == repeated.scores(query).tolist()
        assert alone.scores(query).tolist() == plain.scores(query).tolist()


def test_words_are_stemmed_and_case_and_stop_words_count_for_nothing(bm25):
    assert bm25.scores("APPLE").tolist() == bm25.scores("apples of the").tolist()
    assert bm25.scores("driving")[2] > 0


def test_top_k_is_by_score_then_row_without_passages_that_share_no_word(bm25):
    rows, scores = bm25.top_k("green tree", 5)
    assert rows.tolist() == [1, 4, 0]
    assert scores.tolist() == sorted(scores.tolist(), reverse=True)
    assert scores.tolist() == bm25.scores("green tree")[rows].tolist()
    assert bm25.top_k("green tree", 2)[0].tolist() == [1, 4]
    assert bm25.top_k("green tree", 100)[0].tolist() == [1, 4, 0]


def test_equal_scores_are_ranked_by_row_at_the_cut_too():
    bm25 = BM25(["same words", "other things", *["same words"] * 30])
    assert bm25.top_k("words", 5)[0].tolist() == [0, 2, 3, 4, 5]


@pytest.mark.parametrize("query", ["nothing here matches", "the of and", "", "?!"])
def test_a_query_that_shares_no_word_finds_nothing(bm25, query):
    assert bm25.scores(query).tolist() == [0] * 5
    assert bm25.top_k(query, 3)[0].tolist() == []
    assert bm25.shares_of_best(query, [0, 1]).tolist() == [0, 0]


def test_shares_are_of_the_best_score_over_all_passages(bm25):
    scores = bm25.scores("red apples")
    shares = bm25.shares_of_best("red apples", np.array([2, 0], dtype=np.uint32))
    np.testing.assert_allclose(shares, [scores[2] / scores.max(), scores[0] / scores.max()])
    assert bm25.shares_of_best("red apples", range(5)).max() == 1


def test_passages_without_a_word_score_zero():
    bm25 = BM25(["", "the", "water"])
    assert bm25.top_k("water", 3)[0].tolist() == [2]


def generated(count: int) -> list[str]:
    """Texts of made-up words, frequent and rare ones, some of them empty."""
    random = Random(0)
    words = [f"{first}{second}{third}" for first in "bdgklm" for second in "aeiou" for third in "nrstx"]
    return [
        " ".join(random.choices(words, [1 / (n + 1) for n in range(len(words))], k=random.randrange(30)))
        for _ in range(count)
    ]


QUERIES = [*generated(40), "", "bar bar ban", "nothing", "the"]


@pytest.fixture
def small_pieces(monkeypatch):
    """So that a few hundred texts are many blocks, spilled to a file, and scored in many ranges of terms."""
    for name, value in (("TEXTS", 17), ("_IN_MEMORY", 64), ("_RANGE", 50)):
        monkeypatch.setattr(postings, name, value)


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4), (2.0, 1.0)])
def test_scores_are_those_of_bm25s_to_the_last_bit(small_pieces, k1, b):
    texts = generated(400)
    bm25, theirs = BM25(iter(texts), k1=k1, b=b), bm25s.BM25(k1=k1, b=b)
    stemmer = Stemmer.Stemmer("english")

    def tokens(some):
        return bm25s.tokenize(some, stopwords="en", stemmer=stemmer, show_progress=False, return_ids=False)

    theirs.index(tokens(texts), show_progress=False)
    for query in QUERIES:
        (words,) = tokens([query])
        expected = theirs.get_scores(words) if words else np.zeros(400, dtype=np.float32)
        assert bm25.scores(query).tolist() == expected.tolist()
        for k in (1, 7, 1000):
            rows, scores = bm25.top_k(query, k)
            best = np.lexsort((np.arange(400), -expected))[:k]
            assert rows.tolist() == best[expected[best] > 0].tolist()
            assert scores.tolist() == expected[rows].tolist()


def test_texts_without_spaces_are_indexed_by_pairs_of_characters():
    bm25 = BM25(
        ["今天天气很好，适合散步", "数据库的索引加快查询", "東京タワーはどこですか", "the word 索引 in English"]
    )
    assert bm25.top_k("什么是索引？", 4)[0].tolist() == [3, 1]
    assert bm25.top_k("東京はどこ", 4)[0].tolist() == [2]
    assert bm25.top_k("word", 4)[0].tolist() == [3]


def test_an_index_does_not_depend_on_how_its_texts_were_cut_up_nor_on_where_it_is(tmp_path, monkeypatch):
    texts = generated(300)
    whole = BM25(texts)
    whole.save(tmp_path / "whole")
    for name, value in (("TEXTS", 17), ("_IN_MEMORY", 64), ("_RANGE", 50)):
        monkeypatch.setattr(postings, name, value)
    BM25(iter(texts), directory=tmp_path / "built")
    assert len(list((tmp_path / "whole").iterdir())) == 5
    assert files(tmp_path / "whole") == files(tmp_path / "built")


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_the_numbers_of_words_do_not_depend_on_the_hash_seed(tmp_path):
    code = "import sys; from gnnretrieval.encoders import BM25; BM25(sys.argv[2:], directory=sys.argv[1])"
    made = []
    for seed in ("1", "2"):
        command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / seed), *TEXTS]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        made.append(files(tmp_path / seed))
    assert made[0] == made[1]


def test_saved_and_opened_it_answers_the_same_from_memory_maps(tmp_path, small_pieces):
    bm25 = BM25(generated(200), k1=0.9, b=0.4)
    bm25.save(tmp_path / "index")
    again = BM25.open(tmp_path / "index")
    assert (again.k1, again.b) == (bm25.k1, bm25.b) == (0.9, 0.4)
    assert isinstance(again._postings.scores.base, np.memmap)
    assert (again.num_passages, again.num_postings) == (200, bm25.num_postings)
    for query in QUERIES:
        assert again.scores(query).tolist() == bm25.scores(query).tolist()
        assert again.shares_of_best(query, [3, 1]).tolist() == bm25.shares_of_best(query, [3, 1]).tolist()


def test_bm25s_opens_what_was_saved(tmp_path):
    bm25 = BM25(TEXTS)
    bm25.save(tmp_path)
    theirs = bm25s.BM25.load(tmp_path, mmap=True)
    assert theirs.get_scores(["appl", "tree"]).tolist() == bm25.scores("apples tree").tolist()


def test_many_queries_are_answered_as_one_by_one_and_counted(bm25, small_pieces):
    done = []
    found = list(bm25.top_k_of(QUERIES + TEXTS, 3, done.append))
    assert sum(done) == len(found) == len(QUERIES) + len(TEXTS)
    for query, (rows, scores) in zip(QUERIES + TEXTS, found, strict=True):
        expected = bm25.top_k(query, 3)
        assert (rows.tolist(), scores.tolist()) == (expected[0].tolist(), expected[1].tolist())


def test_a_query_leaves_nothing_behind_for_the_next(bm25):
    before = bm25.scores("tree").tolist()
    bm25.top_k("green tree", 1)
    bm25.shares_of_best("red tree", [1])
    assert bm25.scores("tree").tolist() == before


def test_no_texts_at_all_are_an_index_too(tmp_path):
    for bm25 in (BM25([]), BM25(["", "the"]), BM25([], directory=tmp_path)):
        assert bm25.top_k("water", 3)[0].tolist() == []
        assert not bm25.scores("water").any()


def test_a_directory_that_is_no_index_or_a_damaged_one_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="no BM25 index"):
        BM25.open(tmp_path)
    other_method = b'{"num_docs": 5, "method": "atire", "k1": 1.5, "b": 0.75}'
    for name, content in (
        ("params.index.json", other_method),
        ("params.index.json", b"{"),
        ("data.csc.index.npy", b"x"),
        ("vocab.index.json", b"{}"),
    ):
        BM25(TEXTS, directory=tmp_path / name)
        (tmp_path / name / name).write_bytes(content)
        with pytest.raises(ArtifactError):
            BM25.open(tmp_path / name)


@pytest.mark.parametrize("number", [-1, 10**6, "x", None])
def test_a_word_s_number_out_of_range_is_refused(number, tmp_path):
    BM25(["one two", "two three"]).save(tmp_path)
    words = json.loads((tmp_path / "vocab.index.json").read_text())
    (tmp_path / "vocab.index.json").write_text(json.dumps({**words, "two": number}))
    with pytest.raises(ArtifactError, match="this is no BM25 index"):
        BM25.open(tmp_path)


def test_a_posting_of_a_passage_that_is_not_there_is_a_sentence(tmp_path):
    BM25(["one two", "two three"]).save(tmp_path)
    file = tmp_path / "indices.csc.index.npy"
    np.save(file, np.load(file) + 7)
    with pytest.raises(ArtifactError, match="these postings are damaged"):
        BM25.open(tmp_path).scores("two")


def test_jax_is_not_imported_and_can_be_imported_afterwards(tmp_path):
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("print('imported')")
    (tmp_path / "jax" / "lax.py").write_text("raise RuntimeError('no GPU is left')")
    program = "import gnnretrieval.encoders.bm25; print('first'); import jax; import gnnretrieval.encoders.bm25"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["first", "imported"]
