import pytest
import torch
from transformers import AutoTokenizer

from gnnretrieval.encoders.late_tokens import MARKERS, LateTokenizer
from gnnretrieval.errors import InputError


@pytest.fixture
def tokenizer(tiny_checkpoint):
    made = AutoTokenizer.from_pretrained(tiny_checkpoint)
    made.add_special_tokens({"additional_special_tokens": [*MARKERS.values()]})
    return made


def words(tokenizer, tokens):
    return tokenizer.convert_ids_to_tokens(tokens.ids.tolist())


def test_a_question_is_marked_and_filled_with_masks_that_have_vectors(tokenizer):
    (short, long) = LateTokenizer(tokenizer).tokens(["a b", "a " * 9], "query", 8)
    assert words(tokenizer, short)[:2] == ["[CLS]", "[Q]"]
    assert words(tokenizer, short)[-1] == "[MASK]"
    assert len(short.ids) == len(long.ids) == 8
    assert "[MASK]" not in words(tokenizer, long)
    assert short.starts.tolist() == list(range(8))


def test_punctuation_of_a_passage_is_read_and_has_no_vector(tokenizer):
    (made,) = LateTokenizer(tokenizer).tokens(["a, b."], "passage", 64)
    assert words(tokenizer, made) == ["[CLS]", "[D]", "a", ",", "b", ".", "[SEP]"]
    assert made.starts.tolist() == [0, 1, 2, 4, 6]


def test_a_passage_is_cut_to_its_maximum_with_the_marker(tokenizer):
    (made,) = LateTokenizer(tokenizer).tokens(["a b c d e f"], "passage", 6)
    assert words(tokenizer, made) == ["[CLS]", "[D]", "a", "b", "c", "[SEP]"]


def test_a_vocabulary_without_markers_is_refused(tiny_checkpoint):
    with pytest.raises(InputError, match="encoder train colbert"):
        LateTokenizer(AutoTokenizer.from_pretrained(tiny_checkpoint))


def test_the_tokens_are_numbers_that_the_model_can_read(tokenizer):
    (made,) = LateTokenizer(tokenizer).tokens([""], "passage", 8)
    assert torch.from_numpy(made.ids).dtype == torch.int64
    assert made.starts.tolist() == [0, 1, 2]  # an empty passage still has its special tokens


def test_few_vectors_are_those_of_a_passages_first_tokens_and_of_a_questions_first(tokenizer):
    few = LateTokenizer(tokenizer, most=3)
    (long,) = few.tokens(["a, b c d"], "passage", 64)
    assert words(tokenizer, long)[:4] == ["[CLS]", "[D]", "a", ","]
    assert long.starts.tolist() == [0, 1, 2]
    assert LateTokenizer(tokenizer, most=9).tokens([""], "passage", 64)[0].starts.tolist() == [0, 1, 2]  # it has three
    (question,) = few.tokens(["a b"], "query", 8)
    assert words(tokenizer, question) == ["[CLS]", "[Q]", "a", "b", "[SEP]"]  # no masks
    assert question.starts.tolist() == [0]


def test_where_only_same_tokens_meet_sep_has_no_vector(tokenizer):
    same = LateTokenizer(tokenizer, "same")
    (passage,) = same.tokens(["a, b."], "passage", 64)
    assert tokenizer.convert_ids_to_tokens(passage.kept_ids.tolist()) == ["[CLS]", "[D]", "a", "b"]
    one, other = same.tokens(["a b [SEP] a", "a"], "query", 12)
    assert len(one.starts) == len(other.starts) == 11  # equal, though one text names the token itself
    assert tokenizer.convert_ids_to_tokens(other.kept_ids.tolist()) == ["[CLS]", "[Q]", "a", *["[MASK]"] * 8]
