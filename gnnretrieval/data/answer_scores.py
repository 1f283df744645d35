"""Exact match and F1 of an answer in words, by SQuAD's definition (Rajpurkar et al. 2016, section 6.1)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_SIGNS = str.maketrans("", "", string.punctuation)


def squad_words(text: str) -> list[str]:
    """The words that SQuAD's measures compare: lower case, without punctuation and English articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_SIGNS)).split()


def exact_match(predicted: str, answers: Sequence[str]) -> float:
    """1 if the predicted answer has the words of one of the gold ``answers`` in their order, else 0.

    Raises:
        ValueError: There are no gold answers.
    """
    words = squad_words(predicted)
    return max(float(words == squad_words(answer)) for answer in answers)


def answer_f1(predicted: str, answers: Sequence[str]) -> float:
    """F1 of the predicted answer's words, as a bag: the highest over the gold ``answers``.

    Two answers without words, such as "the" and "a", have 1, as in SQuAD 2.0's script.

    Raises:
        ValueError: There are no gold answers.
    """
    return max(_f1(squad_words(predicted), squad_words(answer)) for answer in answers)


def _f1(predicted: list[str], gold: list[str]) -> float:
    if not predicted or not gold:
        return float(predicted == gold)
    common = (Counter(predicted) & Counter(gold)).total()
    return 2 * common / (len(predicted) + len(gold))
