import numpy as np
import pytest
from transformers import AutoTokenizer

from gnnretrieval.data.sentence_split import split_sentences
from gnnretrieval.encoders.sentence_tokens import SENT, SentenceTokenizer
from gnnretrieval.errors import InputError
from gnnretrieval.index.sentence_search import sentence_text


@pytest.fixture(scope="module")
def plain(tiny_checkpoint):
    return AutoTokenizer.from_pretrained(tiny_checkpoint)


@pytest.fixture(scope="module")
def marked(tiny_checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    tokenizer.add_special_tokens({"additional_special_tokens": [SENT]})
    return tokenizer


def words(tokenizer, ids) -> str:
    return " ".join(tokenizer.convert_ids_to_tokens(ids.tolist()))


def test_the_input_is_the_papers_with_a_marker_before_every_sentence(marked):
    (made,) = SentenceTokenizer(marked, 64).tokens(["A b. C d e! F"])
    assert words(marked, made.ids) == "[CLS] <sent> a b . <sent> c d e ! <sent> f [SEP]"
    assert made.starts.tolist() == [1, 5, 10]
    assert made.ends.tolist() == [5, 10, 12]
    assert made.spans == [(0, 4), (5, 11), (12, 13)]
    assert made.cut == 0


def test_without_a_marker_in_the_vocabulary_the_ids_are_the_tokenizers_own(plain, tiny_dataset):
    from gnnretrieval.data import Dataset

    texts = [passage.full_text for passage in Dataset.open(tiny_dataset).passages()]
    texts += ["one sentence", "A b. C d e! F", " ".join(texts[:9]), "", "  "]
    for limit in (7, 20, 64):
        made = SentenceTokenizer(plain, limit).tokens(texts)
        expected = plain(texts, truncation=True, max_length=limit)["input_ids"]
        assert [tokens.ids.tolist() for tokens in made] == expected


def test_sentences_share_out_the_tokens_between_the_special_ones(plain):
    (made,) = SentenceTokenizer(plain, 64).tokens(["A b. C d e! F"])
    assert made.starts.tolist() == [1, 4, 8]
    assert made.ends.tolist() == [4, 8, 9]


def test_a_text_of_one_sentence_with_a_marker_is_the_plain_one_with_one_token_more(plain, marked):
    (made,) = SentenceTokenizer(marked, 64).tokens(["a b c"])
    (without,) = SentenceTokenizer(plain, 64).tokens(["a b c"])
    assert made.ids.tolist() == [without.ids[0], marked.convert_tokens_to_ids(SENT), *without.ids[1:]]


@pytest.mark.parametrize(
    ("limit", "wanted", "sentences", "cut"),
    [
        (13, "[CLS] <sent> a b . <sent> c d e ! <sent> f [SEP]", 3, 0),
        (12, "[CLS] <sent> a b . <sent> c d e ! [SEP]", 2, 1),  # no marker without a token of its sentence
        (11, "[CLS] <sent> a b . <sent> c d e ! [SEP]", 2, 1),
        (9, "[CLS] <sent> a b . <sent> c d [SEP]", 2, 1),
        (7, "[CLS] <sent> a b . [SEP]", 1, 2),
        (4, "[CLS] <sent> a [SEP]", 1, 2),
    ],
)
def test_a_long_passage_is_cut_before_its_last_special_token_and_lost_sentences_are_counted(
    marked, limit, wanted, sentences, cut
):
    (made,) = SentenceTokenizer(marked, limit).tokens(["A b. C d e! F"])
    assert words(marked, made.ids) == wanted
    assert (len(made.starts), len(made.ends), len(made.spans), made.cut) == (sentences,) * 3 + (cut,)
    assert made.ends[-1] == len(made.ids) - 1


@pytest.mark.parametrize("text", ["", " ", "\u0000"])
def test_a_text_without_tokens_is_one_sentence(plain, marked, text):
    (made,) = SentenceTokenizer(plain, 8).tokens([text])
    assert (words(plain, made.ids), made.starts.tolist(), made.ends.tolist()) == ("[CLS] [SEP]", [0], [2])
    (made,) = SentenceTokenizer(marked, 8).tokens([text])
    assert (words(marked, made.ids), made.starts.tolist(), made.ends.tolist()) == ("[CLS] <sent> [SEP]", [1], [2])


def test_a_prompt_is_in_the_first_sentence_and_in_no_span(marked):
    (made,) = SentenceTokenizer(marked, 64, "q: r. ").tokens(["A b. C."])
    assert words(marked, made.ids).startswith("[CLS] <sent> q")
    assert words(marked, made.ids).endswith("r . a b . <sent> c . [SEP]")
    assert made.spans == [(0, 4), (5, 7)]


def test_byte_level_tokens_that_hold_the_space_before_them_fall_to_their_word(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {piece: row for row, piece in enumerate([*sorted(alphabet), "<s>", "</s>"])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    ends = [("<s>", vocabulary["<s>"]), ("</s>", vocabulary["</s>"])]
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    text = "Go on. é b. C"
    (made,) = SentenceTokenizer(tokenizer, 64).tokens([text])
    assert made.ids.tolist() == tokenizer(text)["input_ids"]
    assert (made.ids[0], made.ids[-1]) == (vocabulary["<s>"], vocabulary["</s>"])
    assert len(made.spans) == 3
    assert made.starts[0] == 1
    assert np.array_equal(made.starts[1:], made.ends[:-1])


def test_a_limit_without_place_for_a_token_is_refused(plain, marked):
    with pytest.raises(InputError, match="max_tokens is 2: give at least 3"):
        SentenceTokenizer(plain, 2)
    with pytest.raises(InputError, match="max_tokens is 3: give at least 4"):
        SentenceTokenizer(marked, 3)


def test_a_tokenizer_without_tokenizer_json_is_refused():
    class Slow:
        name_or_path = "old/model"

    with pytest.raises(InputError, match=r"old/model: this checkpoint's tokenizer has no tokenizer\.json"):
        SentenceTokenizer(Slow(), 8)


def test_a_sentence_is_the_one_that_its_number_names_after_a_byte_order_mark(plain):
    text = "\ufeff\nA b. C d e! F"
    (made,) = SentenceTokenizer(plain, 64).tokens([text])
    assert made.spans == split_sentences(text)
    assert sentence_text(text, 1) == "C d e!"
