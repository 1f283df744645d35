"""The map of 100,000 synthetic passages: how long it takes to build, to be seen first, and how smoothly it moves.

    .venv/bin/pip install --constraint constraints.txt '.[cpu,serve,browser]'
    .venv/bin/python benchmarks/map.py

Makes a run over seeded vectors around common topics, and its map. In the map that is shown, a third of the passages are
moved, since a GNN-encoder finds nothing to move in synthetic vectors. `gnnretrieval serve` serves it in a separate
process. Chromium draws without a graphics card (SwiftShader), as the slowest of readers' machines would:

- first paint: from the start of navigation, with an empty cache, until the frame after the first that has the points;
- frames: the page moves the map in each frame for some seconds. A frame ends when one pixel was read back, so no frame
  counts whose points are not drawn yet.

Writes results/map.json and results/map.md.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import click
import numpy as np
from playwright.sync_api import Browser, sync_playwright

from gnnretrieval import GraphRetriever
from gnnretrieval.maps.building import build_map, embeddings_behind
from gnnretrieval.maps.passage_map import KIND, RECORDS, PassageMap, open_map
from gnnretrieval.progress import say, show_progress
from gnnretrieval.serve.map_page import write_map_file
from gnnretrieval.storage.arrays import save_array
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json
from gnnretrieval.training.gnn import ladder

RESULTS = Path(__file__).resolve().parent / "results"
PASSAGES, QUERIES, DIMENSION, TOPICS, SEED = 100_000, 5_000, 64, 60, 0
LOADS, SECONDS = 5, 4
WANTED_PAINT, WANTED_FRAMES = 2.0, 30
NOTHING = "an empty picture: what this machine gives"
SCREENS: dict[str, dict[str, Any]] = {
    "desktop, 1280 × 800": {"viewport": {"width": 1280, "height": 800}},
    "phone, 390 × 740 at 2 pixels a unit": {
        "viewport": {"width": 390, "height": 740},
        "device_scale_factor": 2,
        "has_touch": True,
    },
}
MOVES = {
    NOTHING: "n => picture.getContext('webgl2').clear(16384)",
    "pan": "n => zooming.translateBy(mapLibraries.select(over), n % 120 < 60 ? 4 : -4, n % 80 < 40 ? 3 : -3)",
    "pan, magnified eightfold": "n => zooming.translateBy(mapLibraries.select(over), n % 120 < 60 ? 1 : -1, 0)",
    "before to after": "n => { if (n % 30 === 0) show(n % 60 ? 'after' : 'before'); }",
}
FRAMES = """([move, seconds]) => new Promise(done => {
  const gl = picture.getContext("webgl2"), pixel = new Uint8Array(4), times = [], begun = performance.now();
  let last = begun;
  const step = () => {
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
    const now = performance.now();
    times.push(now - last);
    last = now;
    move(times.length);
    now - begun < 1000 * seconds ? requestAnimationFrame(step) : done([times, view.every]);
  };
  requestAnimationFrame(step);
})"""


def make_run(directory: Path) -> Path:
    """A run of passages around topics, whose questions pull some of them; reused if it is there."""
    if (directory / "index" / "meta.json").is_file():
        return directory
    rng = np.random.default_rng(SEED)
    topics = rng.normal(size=(TOPICS, DIMENSION))
    passages = (topics[rng.integers(0, TOPICS, PASSAGES)] + 0.6 * rng.normal(size=(PASSAGES, DIMENSION))).astype("f4")
    rows = rng.integers(0, PASSAGES, QUERIES)
    queries = (passages[rows] + 0.8 * rng.normal(size=(QUERIES, DIMENSION))).astype("f4")
    vars(ladder)["STEPS"] = (100,)  # few steps: quality does not matter
    GraphRetriever.fit(
        {f"p{row}": f"passage {row}" for row in range(PASSAGES)},
        {f"q{row}": f"question {row}" for row in range(QUERIES)},
        {f"q{row}": {f"p{rows[row]}": 1} for row in range(QUERIES)},
        vectors=(passages, queries),
        out=directory,
        k=5,
    )
    return directory


def move(passage_map: PassageMap) -> PassageMap:
    """The map with a third of its passages moved by some of its extent, in its place."""
    rng = np.random.default_rng(SEED)
    before = np.array(passage_map.before)
    lengths = np.where(rng.random(len(before)) < 1 / 3, rng.gamma(2, 0.15, len(before)), 0)
    angles = 0.6 + 0.5 * rng.normal(size=len(before))
    way = lengths[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    arrays = {
        "before": before,
        "after": before + before.std(0) * way,
        "displacement": lengths / lengths.max(),
        "questions": np.array(passage_map.questions),
    }
    figures = {name: passage_map.meta[name] for name in RECORDS}

    def write(directory: Path) -> dict[str, Any]:
        for name, array in arrays.items():
            save_array(directory / f"{name}.npy", array.astype(np.float32))
        return {**figures, "displacement_kept": 0.3, "share_moved": float((lengths > 0).mean())}

    config = {**passage_map.config, "moved": True}
    make_artifact(passage_map.path, KIND, inputs=passage_map.meta["inputs"], config=config, write=write, overwrite=True)
    return open_map(passage_map.path)


@contextmanager
def serving(run: Path) -> Iterator[str]:
    """The address of `gnnretrieval serve` over the run, once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "gnnretrieval", "serve", run, "--port", str(port)])
    try:
        for _ in range(600):
            try:
                urlopen(f"http://127.0.0.1:{port}/map/figures", timeout=5).read()
                break
            except OSError:
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/map"
    finally:
        server.terminate()
        server.wait()


def first_paints(browser: Browser, address: str, screen: dict[str, Any]) -> list[float]:
    """Seconds from the start of navigation until the points are on the screen, each with an empty cache."""
    figures = []
    for _ in range(LOADS):
        context = browser.new_context(**screen)
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("body[data-painted]", timeout=60_000)
        figures.append(page.evaluate("performance.getEntriesByName('map-painted')[0].startTime") / 1000)
        context.close()
    return figures


def frames(browser: Browser, address: str, screen: dict[str, Any], shot: Path) -> dict[str, dict[str, float]]:
    """Frames a second of each move, and the frame's time that one of a hundred exceeds."""
    context = browser.new_context(**screen)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("body[data-painted]", timeout=60_000)
    page.wait_for_selector("#list .item")
    page.screenshot(path=shot)
    figures = {}
    for name, move in MOVES.items():
        scale = 8 if "eightfold" in name else 1
        page.evaluate(f"zooming.transform(mapLibraries.select(over), mapLibraries.zoomIdentity.scale({scale}))")
        times, every = page.evaluate(f"([seconds]) => ({FRAMES})([{move}, seconds])", [SECONDS])
        times = times[1:]
        figures[name] = {
            "one_drawn_of": every,
            "frames_per_second": 1000 * len(times) / sum(times),
            "slowest_hundredth_ms": float(np.percentile(times, 99)),
        }
    context.close()
    return figures


def markdown(results: dict[str, Any]) -> str:
    """The results as a page."""
    lines = [
        f"# The map of {results['passages']:,} passages",
        "",
        "Regenerate: `.venv/bin/python benchmarks/map.py`",
        "",
        f"{results['passages']:,} synthetic passages, a third of them moved, and {results['questions']:,} questions "
        f"of {results['dimension']} dimensions, on {results['cores']} cores that other programs used too "
        f"(load {results['load']:.1f}). Chromium {results['chromium']} draws without a graphics card (SwiftShader), "
        "and the server shares the cores.",
        "",
        "| | measured | wanted |",
        "|---|---|---|",
        f"| map built (PCA) in | {results['build_seconds']:.1f} s | |",
        f"| points sent by the server | {results['points_bytes'] / 2**20:.1f} MiB | |",
        f"| file with {results['texts']:,} texts | {results['file_bytes'] / 2**20:.1f} MiB | |",
    ]
    for screen, of_screen in results["screens"].items():
        for place, paints in of_screen["first_paint"].items():
            lines.append(
                f"| {screen}: first paint, {place} (median of {len(paints)}, slowest) "
                f"| {statistics.median(paints):.2f} s, {max(paints):.2f} s | {WANTED_PAINT:g} s |"
            )
        for move, figures in of_screen["frames"].items():
            drawn = "none" if move == NOTHING else f"1 of {figures['one_drawn_of']}"
            lines.append(
                f"| {screen}: frames a second, {move} (slowest hundredth of the frames; points drawn) | "
                f"{figures['frames_per_second']:.0f} ({figures['slowest_hundredth_ms']:.0f} ms; "
                f"{drawn}) "
                f"| {WANTED_FRAMES if move != NOTHING else ''} |"
            )
    lines += [
        "",
        "First paint: from the start of navigation with an empty cache until the frame after the first that has the "
        f"points. Frames: the page moves the map in each frame for {SECONDS} seconds; a frame ends when one of its "
        "pixels was read back, so every counted frame was drawn. Chromium starts at most 60 frames a second. A machine "
        "that takes longer than 25 ms for all points draws one of 2, 4, 8 or 16 while the map moves, and all of them "
        "150 ms after. The empty picture is the same page without points: about the most that Chromium gives here at "
        "this load.",
        "",
    ]
    return "\n".join(lines)


@click.command(help=__doc__)
@click.option("--work", type=click.Path(path_type=Path), help="Keep run and map here, to go on.")
def main(work: Path | None) -> None:
    show_progress()
    with tempfile.TemporaryDirectory() as scratch:
        place = work or Path(scratch)
        run = make_run(place / "run")
        embeddings = embeddings_behind(run)
        shutil.rmtree(run / "map", ignore_errors=True)
        start = time.perf_counter()
        passage_map = build_map(embeddings, run / "map")
        seconds = time.perf_counter() - start
        passage_map = move(passage_map)
        file, texts = place / "map.html", 10_000
        write_map_file(passage_map, file, most=PASSAGES, most_texts=texts)
        results: dict[str, Any] = {
            "passages": PASSAGES,
            "questions": passage_map.num_questions,
            "dimension": DIMENSION,
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "build_seconds": seconds,
            "file_bytes": file.stat().st_size,
            "texts": texts,
            "screens": {},
        }
        arguments = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
        with serving(run) as address, sync_playwright() as started:
            results["points_bytes"] = len(urlopen(f"{address}/points").read())
            browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
            results["chromium"] = browser.version
            for name, screen in SCREENS.items():
                say(name)
                addresses = {"served": address, "file": file.as_uri()}
                results["screens"][name] = {
                    "first_paint": {where: first_paints(browser, url, screen) for where, url in addresses.items()},
                    "frames": frames(browser, address, screen, place / f"{name.partition(',')[0]}.png"),
                }
            browser.close()
    results |= {"versions": library_versions(), "git_revision": git_revision()}
    write_json(RESULTS / "map.json", results)
    (RESULTS / "map.md").write_text(markdown(results), encoding="utf-8")
    say(markdown(results))


if __name__ == "__main__":
    main()
