"""Options and questions that cannot be."""

import pytest
import torch


@pytest.fixture
def refuses_graph(made, refuses, tmp_path):
    """Building a graph with these options must fail."""

    def build(*options: object, says: tuple[object, ...]) -> None:
        out = tmp_path / "graph"
        refuses("graph", "build", made.data, made.features, *options, "--out", out, says=says, out=out)
        assert not list(tmp_path.iterdir())

    return build


def test_k_of_a_graph_is_from_1_to_the_corpus(refuses_graph):
    refuses_graph("--k", 41, says=("k is 41", "40 passages"))
    refuses_graph("--k", 0, says=("k", "1", "found 0"))
    refuses_graph("--k", -1, says=("k", "1", "found -1"))
    refuses_graph("--k", "five", says=("--k", "'five' is not a valid integer"))


def test_an_unknown_edge_feature_is_refused_with_the_known_ones(refuses_graph):
    refuses_graph("--edge-features", "score,bm52", says=("'bm52'", "'bm25'", "'reciprocal_rank'"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_cuda_is_refused_before_anything_runs(refuses_graph):
    refuses_graph("--device", "cuda", says=("'--device'", "'cuda' cannot be used"))


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "", "meta"])
def test_a_device_that_cannot_compute_is_refused(device, refuses_graph):
    refuses_graph("--device", device, says=("'--device'", "cannot be used"))


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--epochs", -1, ("epochs", "found -1")),
        ("--mask-ratio", 1.5, ("mask_ratio", "found 1.5")),
        ("--batch-size", 0, ("batch_size", "found 0")),
        ("--context-scales", "a,b", ("context_scales", "found 'a'")),
        ("--heads", 5, ("5 heads", "32")),
        ("--mask-unit", "questions", ("--mask-unit", "'questions' is not one of")),
        ("--learningrate", 1, ("No such option", "--learning-rate")),
    ],
)
def test_training_options(option, value, says, made, refuses, tmp_path):
    out = tmp_path / "model"
    refuses("train", made.graph, option, value, "--out", out, says=says, out=out)


@pytest.mark.parametrize("question", ["", "  "])
def test_an_empty_question(question, made, refuses):
    refuses("search", question, "--index", made.index, says=("the question is empty",))


def test_search_wants_a_question_or_a_dataset(made, refuses, tmp_path):
    refuses("search", "--index", made.index, says=("give exactly one of a QUESTION, --prompt", "need --run FILE"))
    refuses("search", "--index", made.index, "--data", made.data, says=("--run FILE",))
    refuses(
        "search", "q", "--index", made.index, "--data", made.data, "--run", tmp_path / "r", says=("exactly one of",)
    )
    refuses("search", "q", "--index", made.index, "--k", 0, says=("'--k'", "0 is not in the range"))


def test_search_without_an_index_says_how_to_get_one(refuses, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuses("search", "anything", says=("graphs/docstrings/index", "quickstart"))


@pytest.mark.parametrize("option", [("--k", 3), ("--explain",), ("--json",)])
def test_an_option_of_questions_is_not_ignored_with_a_dataset(option, made, refuses, tmp_path):
    run = tmp_path / "a.run"
    refuses("search", "--index", made.index, "--data", made.data, "--run", run, *option, says=(option[0],), out=run)


@pytest.mark.parametrize("option", [("--depth", 3), ("--split", "dev")])
def test_an_option_of_datasets_is_not_ignored_with_a_question(option, made, refuses):
    refuses("search", "anything", "--index", made.index, *option, says=(option[0],))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--probes", 0.5), "--probes goes with --search faiss"),
        (("--cross-encoder", "x"), "--cross-encoder goes with --edge-vectors cross-encoder"),
        (("--pair-tokens", 64), "--pair-tokens goes with --edge-vectors cross-encoder"),
    ],
)
def test_an_option_of_a_graph_is_not_ignored_without_the_one_it_belongs_to(options, says, refuses_graph):
    refuses_graph(*options, says=(says,))


@pytest.mark.parametrize("command", ["neighbors", "view"])
def test_features_are_not_ignored_without_a_model(command, made, refuses):
    refuses("graph", command, made.graph, "p01", "--features", made.features, says=("--features goes with --model",))


def test_an_option_of_an_index_is_not_ignored_where_it_has_no_effect(made, refuses, tmp_path):
    file = tmp_path / "vectors.npy"
    refuses("index", "export", made.index, "--out", file, "--table", "mine", says=("--table goes with",), out=file)
    changed = ("index", "build", made.embeddings, "--changed", "--out", made.index)
    refuses(*changed, "--overwrite", says=("--overwrite and settings are of a new one",))


def test_a_split_of_no_new_questions_is_refused(made, refuses):
    add = ("graph", "add", made.graph, "--passages", made.data / "corpus.jsonl", "--split", "x")
    refuses(*add, says=("--split goes with --queries",))


def test_explaining_a_dual_encoder_s_index_is_refused(made, refuses):
    says = ("--explain needs the index of a GNN-encoder",)
    refuses("search", "anything", "--index", made.baseline_index, "--explain", says=says)


def test_a_run_cannot_be_written_over_a_directory_or_into_a_file(made, refuses, tmp_path):
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    search = ("search", "--bm25", "--data", made.data, "--run")
    refuses(*search, tmp_path / "directory", says=(tmp_path / "directory", "directory"))
    refuses(*search, tmp_path / "file" / "a.run", says=(tmp_path / "file",))
    assert {path.name for path in tmp_path.iterdir()} == {"directory", "file"}


def test_a_node_that_is_not_there(made, refuses):
    refuses("graph", "neighbors", made.graph, "p99", says=(made.graph, "no passage", "'p99'"))
    refuses("graph", "neighbors", made.graph, "nobody", "--query", says=(made.graph, "no query", "'nobody'"))


def test_a_node_of_another_encoding_is_refused(made, refuses):
    refuses("graph", "neighbors", made.graph, "caf\udce9", says=("is not UTF-8: give it in UTF-8",))


def test_a_query_s_id_without_query_is_recognised(made, refuses):
    refuses("graph", "neighbors", made.graph, "train-00", says=("--query",))


def test_more_tokens_than_the_checkpoint_has_positions_for_are_refused(dataset, tiny_checkpoint, refuses, tmp_path):
    with (dataset / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.write('{"_id": "long", "text": "' + "long " * 200 + '"}\n')
    out = tmp_path / "features"
    encode = ("encoder", "encode", dataset, "--checkpoint", tiny_checkpoint, "--max-tokens", 100)
    refuses(*encode, "--out", out, says=("100", "64"), out=out)
