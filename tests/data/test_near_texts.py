import subprocess
import sys
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.data.inspection import near_texts
from gnnretrieval.data.inspection.near_texts import HASHES, NEAR, Signer, near_pairs, similarity, words_of

WORDS = [f"word{number}" for number in range(500)]


def found(texts: list[str], threshold: float = NEAR):
    rows = np.arange(len(texts))
    return near_pairs(rows, Signer().sign(texts), lambda wanted: {row: texts[row] for row in wanted}, threshold)


def passage(random: Random, length: int = 60) -> list[str]:
    return random.choices(WORDS, k=length)


def test_similarity_by_hand():
    # Words a b c d / a b c x: 3 of 5 shared; pairs ab bc cd / ab bc cx: 2 of 4.
    assert similarity("a b c d", "a b c x") == 5 / 9
    assert similarity("A b, c!", "a B c") == 1.0
    assert similarity("a b c", "c b a") == 3 / 7  # the same words, and no pair
    assert similarity("one", "other") == 0.0


def test_signs_that_mean_something_are_words_and_punctuation_is_not():
    assert words_of("Is R1 < 0, “or” not?") == ["is", "r1", "<", "0", "or", "not"]
    assert similarity("R1 < 0", "R1 > 0") < 1


def test_a_script_without_spaces_is_compared_by_its_characters():
    assert words_of("東京は abc") == ["東", "京", "は", "abc"]
    assert similarity("日本の首都は東京である", "日本の首都は東京である。") == 1.0


def test_a_text_without_words_is_its_own_word():
    assert words_of("?!") == ["?!"]
    assert similarity("?!", "…") == 0.0


def test_planted_near_duplicates_are_found_and_nothing_else():
    random = Random(0)
    texts = [" ".join(passage(random)) for _ in range(400)]
    planted = {}
    for row in range(0, 400, 2):
        words = texts[row].split()
        for place in random.sample(range(60), row % 5):
            words[place] = random.choice(WORDS)
        texts[row + 1] = " ".join(words)
        if similarity(texts[row], texts[row + 1]) >= NEAR:
            planted[row, row + 1] = similarity(texts[row], texts[row + 1])
    near = found(texts)
    pairs = {pair[:2]: pair[2] for pair in near.pairs}
    assert len(planted) > 100
    assert pairs.items() <= planted.items()
    assert len(pairs) >= 0.98 * len(planted)
    assert near.is_whole
    assert set(near.texts) == {row for pair in pairs for row in pair}


def test_pairs_are_as_exact_as_comparing_all_with_all():
    random = Random(1)
    texts = [" ".join(random.choices(WORDS[:3], k=random.randint(2, 12))) for _ in range(200)]
    texts = list(dict.fromkeys(texts))
    exact = {
        (one, other)
        for one in range(len(texts))
        for other in range(one + 1, len(texts))
        if similarity(texts[one], texts[other]) >= 0.9
    }
    pairs = {pair[:2] for pair in found(texts, 0.9).pairs}
    assert pairs <= exact
    assert len(pairs) >= 0.95 * len(exact) > 100


def test_questions_of_one_pattern_are_no_near_duplicates():
    texts = [f"what is the capital of {word}" for word in WORDS]
    assert found(texts).pairs == []


def test_pairs_are_sorted_by_similarity():
    random = Random(2)
    words = passage(random)
    near = found([" ".join(words), " ".join([*words, "end"]), " ".join([*words, "end", "still"])])
    assert [pair[:2] for pair in near.pairs] == [(1, 2), (0, 1), (0, 2)]


def test_only_the_rows_asked_for_are_compared():
    texts = ["a b c d e f g", "other words are here", "a b c d e f g"]
    signed = Signer().sign(texts)
    assert near_pairs(np.array([0, 1]), signed, lambda rows: {row: texts[row] for row in rows}).pairs == []
    assert len(near_pairs(np.array([0, 2]), signed, lambda rows: {row: texts[row] for row in rows}).pairs) == 1


def test_more_pairs_than_can_be_compared_are_said_to_be_a_part(monkeypatch):
    random = Random(3)
    texts = []
    for _ in range(20):
        words = passage(random)
        texts += [" ".join(words), " ".join([*words, "end"])]
    monkeypatch.setattr(near_texts, "PAIRS", 5)
    near = found(texts)
    assert len(near.pairs) == 5
    assert not near.is_whole


def test_a_crowd_of_near_equal_texts_is_compared_within_the_window(monkeypatch):
    monkeypatch.setattr(near_texts, "WINDOW", 2)
    words = passage(Random(4))
    texts = [" ".join([*words, str(number)]) for number in range(300)]
    near = found(texts)
    # Not the 44,850 pairs that there are, and yet every text has one.
    assert {row for pair in near.pairs for row in pair[:2]} == set(range(300))
    assert len(near.pairs) <= 300 * 2 * HASHES // near_texts.BAND


@given(st.lists(st.text(), min_size=1, max_size=6))
def test_any_texts_are_signed_and_equal_ones_alike(texts):
    signed = Signer().sign([*texts, *texts])
    assert signed.shape == (2 * len(texts), HASHES)
    assert (signed[: len(texts)] == signed[len(texts) :]).all()
    assert (Signer().sign([texts[-1]])[0] == signed[len(texts) - 1]).all()


def test_signatures_do_not_depend_on_the_process():
    words = "['a b c d', '東京']"
    code = f"from gnnretrieval.data.inspection import near_texts as it; print(it.Signer().sign({words}).tolist())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(Signer().sign(["a b c d", "東京"]).tolist())


def test_remembering_fewer_words_changes_no_signature(monkeypatch):
    texts = [" ".join(passage(Random(number), 20)) for number in range(30)]
    signed = Signer().sign(texts)
    monkeypatch.setattr(near_texts, "_REMEMBERED", 3)
    assert (Signer().sign(texts) == signed).all()


@pytest.mark.parametrize(("alike", "least"), [(0.85, 0.98), (0.92, 0.999)])
def test_bands_and_hashes_miss_few(alike, least):
    # Each hash of two texts agrees with the probability of their similarity.
    agree = np.random.default_rng(0).random((20_000, HASHES)) < alike
    a_band = agree.reshape(-1, HASHES // near_texts.BAND, near_texts.BAND).all(2).any(1)
    assert (a_band & (agree.sum(1) >= near_texts.AGREEING)).mean() >= least
