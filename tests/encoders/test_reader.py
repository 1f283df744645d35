import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gnnretrieval.data.records import Passage
from gnnretrieval.encoders import reader as module
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.loading import load_tokenizer
from gnnretrieval.encoders.reader import NOTHING, Reader, Reading, best_span, log_probabilities
from gnnretrieval.encoders.reader_tokens import ReaderTokenizer
from gnnretrieval.encoders.settings import ReaderSettings
from gnnretrieval.errors import ArtifactError, InputError

SHORT = Passage("p1", "ruga tasu", "rada buse make tuto teva rili.")
LONG = Passage("p2", "", " ".join(["namu", "rili", "ruga", "rada", "buse", "tuto"] * 20))
QUESTION = "make tuto?"


@pytest.fixture(scope="module")
def settings(tiny_reader):
    return ReaderSettings(reader=str(tiny_reader), precision="float32", max_tokens=48)


@pytest.fixture(scope="module")
def reader(settings):
    return Reader(settings)


@given(arrays(np.float64, st.tuples(st.integers(1, 12), st.just(2)), elements=st.integers(-9, 9)), st.integers(1, 15))
def test_the_best_span_is_that_of_trying_all(logits, longest):
    tried = {
        (first, last): logits[first, 0] + logits[last, 1]
        for first in range(len(logits))
        for last in range(first, min(len(logits), first + longest))
    }
    first, last, logit = best_span(logits, longest)
    assert tried[first, last] == logit == max(tried.values())


def test_probabilities_are_over_the_spans_of_all_passages():
    logits = [np.array([[1.0, 0.5], [2.0, -1.0]]), np.array([[0.0, 3.0]])]
    readings = [
        Reading(0, 1, 2.0 - 1.0, *np.logaddexp.reduce(logits[0]).tolist()),
        Reading(0, 1, 0.0 + 3.0, *np.logaddexp.reduce(logits[1]).tolist()),
    ]
    starts, ends = np.exp(np.concatenate(logits)).sum(0)
    expected = [np.exp(2.0) * np.exp(-1.0), np.exp(0.0) * np.exp(3.0)]
    np.testing.assert_allclose(np.exp(log_probabilities(readings)), np.array(expected) / (starts * ends))


def test_a_passage_without_text_changes_nothing(reader):
    (reading,) = reader.read([QUESTION], [SHORT])
    assert log_probabilities([NOTHING, reading])[1] == log_probabilities([reading])[0]
    assert reader.read([QUESTION], [Passage("p0", "ruga", "")]) == [NOTHING]
    assert not np.isfinite(log_probabilities([NOTHING])).any()


def test_a_reading_is_what_the_model_gives_for_the_text_alone(reader, tiny_reader):
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    model, tokenizer = (one.from_pretrained(tiny_reader) for one in (AutoModelForQuestionAnswering, AutoTokenizer))
    tokens = tokenizer(QUESTION, SHORT.full_text, return_offsets_mapping=True, return_tensors="pt")
    offsets = tokens.pop("offset_mapping")[0].numpy() - len("ruga tasu. ")
    made = model.eval()(**tokens)
    inside = [row for row, part in enumerate(tokens.sequence_ids(0)) if part == 1 and offsets[row, 1] > 0]
    logits = torch.stack([made.start_logits[0], made.end_logits[0]], -1)[inside].detach().double().numpy()
    (reading,) = reader.read([QUESTION], [SHORT])
    first, last, logit = best_span(logits, 30)
    assert (reading.start, reading.end) == (offsets[inside[first], 0], offsets[inside[last], 1])
    np.testing.assert_allclose(reading[2:], [logit, *np.logaddexp.reduce(logits)], atol=1e-5)


def test_a_title_is_read_and_never_answers(reader):
    untitled = SHORT._replace(title="")
    titled, other = reader.read([QUESTION] * 2, [SHORT, untitled])
    assert titled.logit != other.logit
    assert 0 <= titled.start < titled.end <= len(SHORT.text)


def test_windows_hold_every_word_of_a_long_passage_and_the_best_of_them_wins(reader):
    windows = reader.tokens.windows([QUESTION], [LONG])
    assert len(windows) > 2
    assert max(len(window.ids) for window in windows) <= 48
    covered = {place for window in windows for start, end in window.characters.tolist() for place in range(start, end)}
    assert covered == {place for place, sign in enumerate(LONG.text) if sign != " "}
    with torch.inference_mode():
        logits = [logits for _, logits in reader._logits(windows)]
    (reading,) = reader.read([QUESTION], [LONG])
    assert reading.logit == max(best_span(one, 30)[2] for one in logits)
    np.testing.assert_allclose(reading[3:], np.logaddexp.reduce(np.concatenate(logits)))


def test_a_question_that_is_too_long_is_cut(reader):
    (window,) = reader.tokens.windows([" ".join(["ruga"] * 90)], [Passage("p", "", "rada buse")])
    assert len(window.ids) <= 48
    assert len(window.characters) == 2


@pytest.mark.parametrize("packs", [True, False])
def test_a_reading_does_not_depend_on_what_is_read_beside_it(settings, packs, monkeypatch):
    monkeypatch.setattr(module, "can_pack", lambda model: packs)
    reader = Reader(settings)
    alone = [*reader.read([QUESTION], [SHORT]), *reader.read(["ruga?"], [LONG])]
    together = reader.read([QUESTION, "ruga?"], [SHORT, LONG])
    assert [one[:2] for one in alone] == [one[:2] for one in together]
    np.testing.assert_allclose([one[2:] for one in alone], [one[2:] for one in together], atol=1e-5)


def test_an_answer_has_at_most_so_many_tokens(settings):
    longest = Reader(settings.model_copy(update={"answer_tokens": 1})).read([QUESTION] * 2, [SHORT, LONG])
    assert all(
        " " not in passage.text[one.start : one.end] for one, passage in zip(longest, (SHORT, LONG), strict=True)
    )


def test_another_checkpoint_is_refused(tiny_cross_encoder):
    with pytest.raises(InputError, match=r"no reader's checkpoint: it has no weights for qa_outputs\.bias"):
        Reader(ReaderSettings(reader=str(tiny_cross_encoder)))


def test_another_artifact_is_refused(tiny_graph):
    with pytest.raises(ArtifactError, match="this directory holds a graph, not a reader"):
        Reader(ReaderSettings(reader=str(tiny_graph.path)))


def test_more_tokens_than_positions_are_refused(tiny_reader):
    with pytest.raises(InputError, match="has positions for 64 tokens, and max_tokens is 100"):
        Reader(ReaderSettings(reader=str(tiny_reader), max_tokens=100))


def test_a_tokenizer_that_does_not_say_where_tokens_lie_is_refused(tiny_reader):
    class Slow:
        is_fast = False

    with pytest.raises(InputError, match="no tokenizer"):
        ReaderTokenizer(Slow(), 48, find_checkpoint(str(tiny_reader)))
    assert load_tokenizer(find_checkpoint(str(tiny_reader))).is_fast
