"""Indexes of other kinds, and every way to ask them; what cannot be answered is one sentence."""

import io
import json
import shutil
import sys

import numpy as np
import pytest
from transformers import AutoTokenizer, BertForMaskedLM

from gnnretrieval.data.runs.trec import read_run


@pytest.fixture(scope="module")
def approximate(made, succeeds, tmp_path_factory):
    """An index of lists of the made embeddings, and what its building said."""
    place = tmp_path_factory.mktemp("approximate") / "index"
    return place, succeeds("index", "build", made.embeddings, "--factory", "IVF4,SQ8", "--out", place)


@pytest.fixture
def index(approximate, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(approximate[0], tmp_path / "index", dirs_exist_ok=True)


def test_building_says_kind_setting_recall_and_times(approximate):
    place, said = approximate
    first, second = said.out.splitlines()
    assert first.startswith(f"{place}: 40 passages, ")
    assert "IVF4,SQ8 searched with nprobe=" in first
    assert "recall against exact search: @10 " in second
    assert "ms for a question alone" in second
    assert "of the dataset's queries" in second


def test_inspect_prints_the_same_and_json_has_every_figure(approximate, succeeds):
    place, said = approximate
    assert succeeds("index", "inspect", place).out.startswith(said.out.rstrip("\n"))
    figures = succeeds("index", "inspect", place, "--json").json
    assert (figures["passages"], figures["factory"], figures["exact"]) == (40, "IVF4,SQ8", False)
    assert figures["measured"]["recall@10"] >= 0.9
    assert succeeds("index", "inspect", place, "--json").json["search"] in said.out


def test_the_default_is_exact_and_says_its_recall(made, succeeds):
    figures = succeeds("index", "inspect", made.index, "--json").json
    assert (figures["factory"], figures["exact"]) == ("Flat", True)
    assert figures["measured"]["recall@10"] == 1.0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--factory", "IVF4096,Flat"), "has 4,096 lists, and there are 40 vectors"),
        (("--factory", "flatt"), "'flatt' is none that FAISS makes"),
        (("--factory", "PQ8"), "cannot be learned from 40 vectors"),
        (("--factory", "IVF4,Flat", "--search", "probes=3"), "this kind has nprobe"),
        (("--factory", "IVF4,SQ4", "--target-recall", "1.0"), "1 is wanted"),
        (("--target-recall", "1.5"), "target_recall"),
        (("--search", "nprobe=1", "--target-recall", "0.9"), "give one of them"),
        (("--memory", "0.0000001"), "too little"),
        (("--changed", "--factory", "SQ8"), "stays of its kind"),
    ],
)
def test_an_index_that_cannot_be_is_said(options, says, made, refuses, tmp_path):
    refuses("index", "build", made.embeddings, *options, "--out", tmp_path / "i", says=(says,), out=tmp_path / "i")


def test_a_removed_passage_is_found_no_more(index, succeeds, refuses, tmp_path):
    question = "What is of use?"
    best = succeeds("search", question, "--index", index, "--json").json["hits"][0]["id"]
    (tmp_path / "ids.txt").write_text("p39\n")
    said = succeeds("index", "remove", index, best, "--ids-file", tmp_path / "ids.txt").out
    assert said == f"{index}: now {40 - len({best, 'p39'})} passages, {len({best, 'p39'})} removed\n"
    for how in ((), ("--hybrid",)):
        found = succeeds("search", question, "--index", index, "--json", "--k", 100, *how).json["hits"]
        assert not {best, "p39"} & {hit["id"] for hit in found}
        assert len(found) == 40 - len({best, "p39"})
    refuses("index", "remove", index, "p99", says=("of no passage of this index, such as 'p99'", "Nothing was removed"))
    refuses("index", "remove", index, says=("nothing to remove",))
    assert "measured before the last update" in succeeds("index", "inspect", index).out


def test_a_purged_passage_leaves_the_disk(made, succeeds, refuses, tmp_path):
    run = shutil.copytree(made.index.parent, tmp_path / "run")
    text = succeeds("search", "What is of use?", "--index", run / made.index.name, "--json").json["hits"][0]["text"]
    id_ = succeeds("search", "What is of use?", "--index", run / made.index.name, "--json").json["hits"][0]["id"]
    said = succeeds("index", "remove", run / made.index.name, id_, "--purge")
    assert said.out == f"{run / made.index.name}: now 39 passages, 1 removed\n"
    assert f"{run / made.index.name}: the index lost the text and vectors of 1 passage" in said.err
    assert text.encode() not in (run / made.index.name / "texts.sqlite").read_bytes()
    refuses("index", "remove", run / made.index.name, "p99", "--purge", says=("Nothing was removed",))


def test_torch_searches_exactly_over_an_approximate_index(approximate, made, succeeds):
    exact = succeeds("search", "anything", "--index", made.index, "--json").json["hits"]
    torch = succeeds("search", "anything", "--index", approximate[0], "--engine", "torch", "--json").json["hits"]
    assert [hit["id"] for hit in torch] == [hit["id"] for hit in exact]
    np.testing.assert_allclose([hit["score"] for hit in torch], [hit["score"] for hit in exact], atol=1e-3)


def test_an_index_that_lost_every_passage_finds_none(index, succeeds):
    succeeds("index", "remove", index, *(f"p{row:02d}" for row in range(40)))
    assert succeeds("search", "anything", "--index", index, "--json").json["hits"] == []
    assert succeeds("search", "anything", "--index", index).out.startswith("0 of 0 passages")


@pytest.mark.parametrize(
    "question", ["", " \t ", "…?!", "何ですか", "Как решить систему?", "word " * 100_000], ids=lambda text: text[:9]
)
@pytest.mark.parametrize("how", [(), ("--hybrid",)], ids=["index", "hybrid"])
def test_any_question_is_answered_but_one_of_no_words(question, how, approximate, succeeds, refuses):
    search = ("search", question, "--index", approximate[0], "--k", 1000, "--json", *how)
    if not question.strip():
        refuses(*search, says=("the question is empty: give some words",))
        return
    hits = succeeds(*search).json["hits"]
    assert len({hit["id"] for hit in hits}) == 40


def test_a_file_of_questions_becomes_a_run(approximate, made, succeeds, tmp_path):
    lines = (made.data / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    tests = [query for line in lines if (query := json.loads(line))["_id"].startswith("test")]
    (tmp_path / "named.tsv").write_text("".join(f"{query['_id']}\t{query['text']}\n" for query in tests))
    (tmp_path / "plain.txt").write_text("".join(f"{query['text']}\n" for query in tests) + "\n")
    search = ("search", "--index", approximate[0], "--depth", 7, "--run")
    succeeds(*search, tmp_path / "split.run", "--data", made.data)
    out = succeeds(*search, tmp_path / "named.run", "--questions", tmp_path / "named.tsv").out
    assert out == f"{tmp_path / 'named.run'}: 10 queries by gnn-encoder\n"
    assert (tmp_path / "named.run").read_bytes() == (tmp_path / "split.run").read_bytes()
    succeeds(*search, tmp_path / "plain.run", "--questions", tmp_path / "plain.txt")
    assert list(read_run(tmp_path / "plain.run").values()) == list(read_run(tmp_path / "named.run").values())
    assert list(read_run(tmp_path / "plain.run")) == [f"q{number}" for number in range(1, 11)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\tone\ntwo\n", ":2: this line has no tab"),
        ("a\tone\na\ttwo\n", ":2: the id 'a' is repeated"),
        ("a\t \n", ":1: question 'a' is empty"),
        ("a b\tone\n", ":1: the id 'a b' is empty or has white space"),
        ("\n", "there are no questions"),
    ],
)
def test_a_file_of_questions_that_cannot_be_is_said(text, says, approximate, refuses, tmp_path):
    (tmp_path / "q.tsv").write_text(text)
    out = tmp_path / "a.run"
    refuses("search", "--index", approximate[0], "--questions", tmp_path / "q.tsv", "--run", out, says=(says,), out=out)


def test_hybrid_and_reranked_runs_say_so_in_their_name(approximate, made, tiny_cross_encoder, succeeds, tmp_path):
    out = succeeds(
        *("search", "--index", approximate[0], "--data", made.data, "--run", tmp_path / "a.run", "--hybrid"),
        *(
            "--fuse",
            "weighted",
            "--weights",
            "0.7,0.3",
            "--rerank",
            tiny_cross_encoder,
            "--rerank-depth",
            3,
            "--pair-tokens",
            64,
        ),
    ).out
    assert "10 queries by gnn-encoder+bm25+rerank" in out
    assert {len(ranking) for ranking in read_run(tmp_path / "a.run").values()} == {40}


def test_late_interaction_ranks_a_corpus_and_reranks_with_neighbours(
    made, tiny_late, tiny_dataset, succeeds, refuses, tmp_path
):
    data = ("--data", tiny_dataset, "--run", tmp_path / "a.run")
    assert "10 queries by late-interaction" in succeeds("search", "--maxsim", tiny_late.path, *data).out
    assert {len(ranking) for ranking in read_run(tmp_path / "a.run").values()} == {40}
    adaptive = ("--rerank", tiny_late.path, "--adaptive", "ladr", "--rerank-depth", 8, "--neighbors", 3)
    said = succeeds("search", "--index", made.index, *adaptive, *data).out
    assert "10 queries by gnn-encoder+ladr+rerank" in said
    succeeds("search", "zu", "--index", made.index, *adaptive)
    refuses("search", "--maxsim", made.features, *data, says=("have one vector each", "encoder train colbert"))


def test_weights_of_terms_rank_a_corpus(made, tiny_checkpoint, tiny_dataset, succeeds, refuses, tmp_path):
    place = tmp_path / "masked"
    bert = tiny_checkpoint.with_name("tiny-bert-bert")
    BertForMaskedLM.from_pretrained(bert).save_pretrained(place)
    AutoTokenizer.from_pretrained(bert).save_pretrained(place)
    encode = ("encoder", "encode", tiny_dataset, "--checkpoint", place, "--sparse", "--out", tmp_path / "terms")
    said = succeeds(*encode)
    assert "40 passages and 80 queries" in said.out
    assert f"search --sparse {tmp_path / 'terms'}" in said.err
    data = ("--data", tiny_dataset, "--run", tmp_path / "a.run")
    assert "10 queries by sparse" in succeeds("search", "--sparse", tmp_path / "terms", *data).out
    assert len(read_run(tmp_path / "a.run")) == 10
    succeeds(*encode[:-1], tmp_path / "sharded", "--shards", 2, "--window", 16)
    succeeds("search", "--sparse", tmp_path / "sharded", *data[:-1], tmp_path / "b.run")
    assert read_run(tmp_path / "b.run").keys() == read_run(tmp_path / "a.run").keys()
    assert "encoding passages: 40 passages in one shard" in succeeds(*encode, "--dry-run").out
    refuses("search", "--sparse", made.features, *data, says=("holds features, not sparse-features",))
    refuses("graph", "build", tiny_dataset, tmp_path / "terms", says=("holds sparse-features, not features",))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("q", "--fuse", "weighted"), "--fuse goes with --hybrid"),
        (("q", "--rerank-depth", 5), "--rerank-depth goes with --rerank"),
        (("q", "--hybrid", "--weights", "a"), "weights"),
        (("q", "--hybrid", "--weights", "0,0"), "not all 0"),
        (("q", "--rerank", "no-such-model"), "no-such-model"),
        (("q", "--prompt"), "exactly one of"),
        (("q", "--where", "domain=squad"), "--where goes with --data"),
        (("--questions", "q.tsv", "--run", "a.run", "--qrels", "graded"), "--qrels goes with --data"),
        (("--prompt", "--json"), "--json goes with a QUESTION"),
        (("--questions", "q.tsv", "--run", "a.run", "--k", 3), "or --prompt. A run has --depth."),
        (("--questions", "q.tsv"), "--questions writes a run: give --run FILE"),
        (("--vectors", "v.npy", "--run", "a.run", "--hybrid"), "--hybrid goes with a QUESTION or --prompt"),
        (("--bm25", "--data", "d", "--run", "a.run", "--hybrid"), "--hybrid needs an index: leave out --bm25"),
        (("q", "--adaptive", "gar"), "--adaptive goes with --rerank"),
        (("q", "--rerank", "m", "--neighbors", 3), "--neighbors goes with --adaptive"),
        (("--maxsim", "f", "--data", "d", "--run", "a.run"), "--maxsim ranks without an index: leave out --index"),
        (("--bm25", "--maxsim", "f", "--data", "d", "--run", "a.run"), "give one of --bm25 and --maxsim"),
        (("--sparse", "f", "--data", "d", "--run", "a.run"), "--sparse ranks without an index: leave out --index"),
        (("--sparse", "f", "--maxsim", "f", "--data", "d", "--run", "a.run"), "give one of --maxsim and --sparse"),
        (("--sparse", "f", "--questions", "q.tsv", "--run", "a.run"), "--sparse goes with --data"),
    ],
)
def test_what_does_not_go_together_is_said(options, says, made, refuses):
    index = () if "--bm25" in options else ("--index", made.index)
    refuses("search", *index, *options, says=(says,))


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (("--weights", "0.7,0.3"), "--weights goes with --hybrid"),
        (("--pair-tokens", 64), "--pair-tokens goes with --rerank"),
        (("--hybrid", "--adaptive", "gar"), "--adaptive goes with --rerank"),
    ],
)
def test_a_server_and_a_reader_refuse_an_option_without_effect_too(option, says, made, refuses):
    refuses("serve", made.index, *option, says=(says,))
    refuses("answer", "q", "--index", made.index, "--reader", "r", *option, says=(says,))


def test_a_prompt_answers_until_its_input_ends_whatever_is_asked(approximate, succeeds, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n\n \nzwei\n")))
    outcome = succeeds("search", "--prompt", "--index", approximate[0], "--k", 2, "--explain")
    assert outcome.out.count("2 of 40 passages in ") == 2
    assert "dual-encoder rank" in outcome.out


def test_a_question_in_another_encoding_is_a_sentence_and_a_prompt_goes_on(made, succeeds, refuses, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n\xe9t\xe9\nzwei\n"), encoding="utf-8"))
    outcome = succeeds("search", "--prompt", "--index", made.index, "--k", 2)
    assert outcome.out.count("2 of 40 passages in ") == 2
    assert "is not UTF-8: give it in UTF-8" in outcome.err
    refuses("search", "\udce9t\udce9", "--index", made.index, says=("is not UTF-8: give it in UTF-8",))


def test_ctrl_c_ends_a_prompt_in_peace(approximate, succeeds, monkeypatch):
    class Interrupted(io.StringIO):
        def readline(self, size=-1):
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert succeeds("search", "--prompt", "--index", approximate[0]).out == ""


def test_exported_vectors_ask_for_themselves(made, succeeds, refuses, tmp_path):
    said = succeeds("index", "export", made.index, "--out", tmp_path / "v.npy").out
    assert said == f"{tmp_path / 'v.npy'}, {tmp_path / 'v.ids.txt'}: 40 vectors\n"
    vectors = ("--vectors", tmp_path / "v.npy", "--query-ids", tmp_path / "v.ids.txt")
    succeeds("search", "--index", made.index, *vectors, "--run", tmp_path / "self.run")
    assert all(ranking[0].passage_id == id_ for id_, ranking in read_run(tmp_path / "self.run").items())
    refuses("index", "export", made.index, says=("give --out FILE, --dsn DATABASE",))
    refuses("index", "export", made.index, "--out", tmp_path / "v.csv", says=(".npy or .parquet",))
    refuses("index", "export", made.index, "--out", tmp_path / "w.npy", "--hnsw", says=("--hnsw goes with --dsn",))
    refuses("index", "export", made.index, "--dsn", "x", "--lancedb", tmp_path / "l", says=("one of them",))
