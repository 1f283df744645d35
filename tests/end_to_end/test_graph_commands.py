"""Looking into a graph from the command line."""

import json


def test_inspect_prints_text_json_and_a_page_of_the_same_figures(made, succeeds, tmp_path):
    page = tmp_path / "graph.html"
    outcome = succeeds("graph", "inspect", made.graph, "--json", "--html", page, "--most", 2)
    figures = outcome.json
    assert f"{page}: the page" in outcome.err
    assert figures["overlap"]["dataset"] == str(made.data)
    assert len(figures["most_found"]) == 2
    assert figures["most_found"][0]["id"] in page.read_text(encoding="utf-8")
    text = succeeds("graph", "inspect", made.graph, "--most", 2).out
    assert all(" ".join(warning.split()) in " ".join(text.split()) for warning in figures["warnings"])
    assert "recall ceiling" in text
    assert "paraphrase" in text


def test_inspect_refuses_a_wrong_dataset_and_a_wrong_place(made, refuses, tmp_path):
    (tmp_path / "empty").mkdir()
    refuses("graph", "inspect", made.graph, "--data", tmp_path / "empty", says=("empty", "no judgements"))
    refuses("graph", "inspect", made.graph, "--html", tmp_path, says=("is a directory",))
    refuses("graph", "inspect", made.graph, "--html", tmp_path / "none" / "page.html", says=("there is no directory",))


def test_neighbors_shows_attention_and_gate_with_a_model_and_two_hops(made, succeeds):
    figures = json.loads(succeeds("graph", "inspect", made.graph, "--json").out)
    busiest = figures["most_found"][0]["id"]
    words = ("graph", "neighbors", made.graph, busiest, "--model", made.model, "--hops", 2, "--most", 3)
    described = succeeds(*words, "--json").json
    assert 0 < described["node"]["mean_gate"] < 1
    whole = succeeds(*words[:-1], 1000, "--json").json
    total = whole["node"]["own_attention"] + sum(edge["attention"] for edge in whole["neighbors"])
    assert abs(total - 1) < 1e-4
    assert described["neighbors"] == whole["neighbors"][:3]
    lines = succeeds(*words).out.splitlines()
    assert lines[0] == f"passage {busiest}: {figures['most_found'][0]['queries']} queries, 3 shown"
    assert "attention to itself" in lines[2]
    assert "mean gate" in lines[2]
    assert sum(line.startswith("    ") and "attention" in line for line in lines) == 9
    of_query = succeeds("graph", "neighbors", made.graph, "train-00", "--query", "--model", made.model, "--json").json
    assert "mean_gate" not in of_query["node"]
    assert all(edge["attention"] > 0 for edge in of_query["neighbors"])


def test_neighbors_refuses_unknown_ids_and_models_of_another_graph(made, refuses):
    refuses("graph", "neighbors", made.graph, "p0O", says=("no passage 'p0O'", "Did you mean"))
    refuses("graph", "neighbors", made.graph, "p00", "--query", says=("leave out is_query = True (--query)",))
    refuses("graph", "neighbors", made.graph, "p00", "--model", made.graph, says=("holds a graph",))
