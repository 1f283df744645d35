import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.data.answer_scores import answer_f1, exact_match

# SQuAD's evaluate-v1.1.py, as published.


def normalize_answer(s):
    def remove_articles(text):
        return re.sub(r"\b(a|an|the)\b", " ", text)

    def white_space_fix(text):
        return " ".join(text.split())

    def remove_punc(text):
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    return white_space_fix(remove_articles(remove_punc(s.lower())))


def f1_score(prediction, ground_truth):
    prediction_tokens = normalize_answer(prediction).split()
    ground_truth_tokens = normalize_answer(ground_truth).split()
    common = Counter(prediction_tokens) & Counter(ground_truth_tokens)
    num_same = sum(common.values())
    if num_same == 0:
        return 0
    precision = 1.0 * num_same / len(prediction_tokens)
    recall = 1.0 * num_same / len(ground_truth_tokens)
    return (2 * precision * recall) / (precision + recall)


CASES = [
    ("The U.S. Army!", ["us army"]),
    ("an oil-embargo", ["the oil embargo", "oilembargo"]),
    ("October 1973", ["October 1973", "October", "1973"]),
    ("in October", ["October 1973", "1973"]),
    ("to be or not to be", ["to be to be", "be"]),
    ("nothing", ["something else"]),
    ("Theatre a", ["theatre"]),
    ("", ["a word"]),
    ("Zürich – “Altstadt”", ["zürich altstadt", "Zürich"]),
]


@pytest.mark.parametrize(("said", "gold"), CASES)
def test_both_measures_are_those_of_squads_script(said, gold):
    assert exact_match(said, gold) == max(normalize_answer(said) == normalize_answer(one) for one in gold)
    assert answer_f1(said, gold) == pytest.approx(max(f1_score(said, one) for one in gold))


WORDS = st.lists(st.sampled_from(["a", "The", "oil", "Oil,", "war.", "1973", "an-", "–"]), max_size=5).map(" ".join)


@given(WORDS, st.lists(WORDS, min_size=1, max_size=3))
def test_both_are_those_of_squads_script_for_any_words(said, gold):
    assert exact_match(said, gold) == max(normalize_answer(said) == normalize_answer(one) for one in gold)
    if normalize_answer(said):
        assert answer_f1(said, gold) == pytest.approx(max(f1_score(said, one) for one in gold))


def test_the_best_gold_answer_counts():
    assert exact_match("1973", ["October 1973", "1973"]) == 1
    assert answer_f1("October", ["October 1973", "in 1974"]) == pytest.approx(2 / 3)


def test_two_answers_without_words_are_equal_as_in_squad_2():
    assert answer_f1("the", ["a"]) == exact_match("the", ["a"]) == 1
    assert answer_f1("the", ["oil"]) == 0
