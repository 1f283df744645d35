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
