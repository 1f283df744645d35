"""Simulated months of a search that learns from its clicks every night, and what the gate lets by.

    .venv/bin/python benchmarks/feedback.py --work WORK --data docstrings=DATASET --data fairytaleqa=DATASET \\
        --features docstrings=FEATURES
    .venv/bin/python benchmarks/feedback.py --work WORK --cost --data docstrings=DATASET --impressions 3000
    .venv/bin/python benchmarks/feedback.py --work WORK --page

Users ask the questions of train and dev, see ten passages as the served version ranks them, and click by position,
relevance and mistake (benchmarks/feedback_nights.py). Versions are compared on the test questions, which nobody asks.
A set without features gets vectors by latent semantic analysis. Months are kept in WORK one by one; after an
interruption the same command continues. ``--cost`` measures an update of 1 % new events against building from nothing
instead (benchmarks/feedback_cost.py). ``--page`` writes results/feedback.json, .md and .svg of all that is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import torch
from feedback_cost import measure_cost
from feedback_nights import Month, World, without_gate
from feedback_page import WITHOUT, WORSE, markdown
from svg_plot import line_plots

from gnnretrieval.data import Dataset
from gnnretrieval.feedback import SimulationSettings
from gnnretrieval.progress import say, show_progress
from gnnretrieval.recipes.update_settings import UpdateSettings
from gnnretrieval.storage.provenance import git_revision, library_versions, write_json

RESULTS = Path(__file__).resolve().parent / "results"
WRONG = (0.1, 0.2, 0.4, 1.0)  # 1.0: clicks do not depend on relevance
_COST = "cost.json"


def month_of(world: World, wrong: float, seed: int, settings: dict[str, Any], compares: bool) -> dict[str, Any]:
    """The figures of a month, night by night."""
    lists = {name: settings[name] for name in ("impressions", "shown")}
    users = SimulationSettings(**lists, wrong_clicks=wrong, seed=seed)
    nights = settings["nights"]
    month = Month(world, users, UpdateSettings(), nights, heads=settings["heads"])
    figures, others = list[dict[str, Any]](), dict[str, dict[str, float]]()
    for day in range(nights):
        figures.append(month.night(day))
        if compares and (day + 1) % settings["every"] == 0:
            others[str(day + 1)] = without_gate(month)
    return {
        "wrong": wrong,
        "seed": seed,
        "settings": settings,
        "passages": len(world.passages),
        "asked": len(world.asked),
        "truth": len(world.truth),
        "frozen": month.frozen,
        "nights": figures,
        "without_gate": others,
    }


def summary(months: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Promotions of some months, and the worst of them on the truth."""
    all_months = list(months)
    nights = [night for month in all_months for night in month["nights"]]
    promoted = [night for night in nights if night["promoted"]]
    # Against the best version that the month had served until then, so that small losses add up.
    drops = []
    for month in all_months:
        best = before = month["frozen"]
        for night in month["nights"]:
            if night["promoted"]:
                drops.append((before - night["truth"], best - night["truth"]))
            before, best = night["truth"], max(best, night["truth"])
    tested = [night for night in nights if "held_out" in night]
    return {
        "months": len(all_months),
        "nights": len(nights),
        "tested": len(tested),
        "promoted": len(promoted),
        "worse": sum(drop > WORSE for drop, _ in drops),
        "largest_drop": max((drop for drop, _ in drops), default=0.0),
        "largest_drop_from_best": max((drop for _, drop in drops), default=0.0),
        "refused_better": sum(night["true_gain"] > WORSE for night in tested if not night["promoted"]),
        "refused_worse": sum(night["true_gain"] < -WORSE for night in tested if not night["promoted"]),
        "frozen": fmean(month["frozen"] for month in all_months),
        "end": fmean(month["nights"][-1]["truth"] for month in all_months),
        "precision": fmean(n["right_labels"] / n["labels"] for n in tested) if tested else None,
        "seconds": fmean(night["seconds"] for night in nights),
        "seconds_of_warm": _mean(night["seconds"] for night in nights if night["training"] == "warm"),
        "seconds_of_full": _mean(night["seconds"] for night in nights if night["training"] == "full"),
    }


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return fmean(numbers) if numbers else None


def write_results(work: Path) -> None:
    """Collect the months into the result files."""
    months: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for file in sorted(work.glob("*.month.json")):
        month = json.loads(file.read_text(encoding="utf-8"))
        months.setdefault((month["set"], month["wrong"]), []).append(month)
    names = sorted({name for name, _ in months})
    curves = [
        {
            "set": name,
            "wrong": wrong,
            "frozen": month["frozen"],
            "loop": [night["truth"] for night in month["nights"]],
            "without_gate": month["without_gate"],
        }
        for (name, wrong), of_set in sorted(months.items())
        for month in of_set
        if month["without_gate"]
    ]
    of_name: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for (name, _), of_set in months.items():
        of_name[name] += of_set
    results: dict[str, Any] = {
        "sets": {
            name: {key: of_name[name][0][key] for key in ("passages", "asked", "truth", "settings")} for name in names
        },
        "gate": [{"set": name, "wrong": wrong, **summary(of_set)} for (name, wrong), of_set in sorted(months.items())],
        "curves": curves,
        "times": {name: summary(of_name[name]) for name in names},
        "months": [
            {"set": name, "wrong": wrong, "seed": month["seed"], "nights": month["nights"]}
            for (name, wrong), of_set in sorted(months.items())
            for month in of_set
        ],
        "cost": json.loads((work / _COST).read_text(encoding="utf-8")) if (work / _COST).is_file() else None,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "versions": library_versions(),
        "git_revision": git_revision(),
    }
    write_json(RESULTS / "feedback.json", results)
    (RESULTS / "feedback.md").write_text(markdown(results), encoding="utf-8")
    plots = []
    for curve in curves:
        nights = range(1, len(curve["loop"]) + 1)
        series = {"loop": list(zip(nights, curve["loop"], strict=True))}
        series["frozen encoder"] = [(1, curve["frozen"]), (len(nights), curve["frozen"])]
        for use in WITHOUT:
            series[use] = [(int(n), others[use]) for n, others in curve["without_gate"].items() if use in others]
        title = f"{curve['set']}, {curve['wrong']:.0%} wrong clicks"
        plots.append((title, {name: [(x, 100 * y) for x, y in points] for name, points in series.items()}))
    (RESULTS / "feedback.svg").write_text(line_plots(plots, ("night", "RR@10 on the truth")), encoding="utf-8")


def _pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    return {name: Path(path) for name, _, path in (value.partition("=") for value in values)}


@click.command()
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Directory of the months.")
@click.option("--data", multiple=True, metavar="SET=DATASET", callback=_pairs, help="Sets.")
@click.option("--features", multiple=True, metavar="SET=FEATURES", callback=_pairs, help="Features of a set.")
@click.option("--where", metavar="KEY=VALUE", multiple=True, help="As for the other commands, for all sets.")
@click.option("--nights", default=30, show_default=True)
@click.option("--impressions", default=1000, show_default=True, help="Lists a night.")
@click.option("--shown", default=10, show_default=True, help="Passages of a list.")
@click.option("--heads", default=3, show_default=True, help="Numbers of steps of a head that training tries.")
@click.option("--dimensions", default=128, show_default=True, help="Width of the vectors.")
@click.option("--joined", is_flag=True, help="Users see what is served joined with BM25's ranking.")
@click.option("--every", default=5, show_default=True, help="Nights between two comparisons without a gate.")
@click.option("--wrong", "wrongs", type=float, multiple=True, help="Shares of wrong clicks.  [default: 0.1 0.2 0.4 1]")
@click.option("--seeds", default="0", show_default=True, help="Seeds of the months, such as 0-6.")
@click.option("--compare", is_flag=True, help="Also compare with uses of the clicks without a gate.")
@click.option("--cost", is_flag=True, help="Measure an update of 1 % new events instead of months.")
@click.option("--page", is_flag=True, help="Only write the page.")
def main(
    work: Path,
    data: dict[str, Path],
    features: dict[str, Path],
    where: tuple[str, ...],
    nights: int,
    impressions: int,
    shown: int,
    heads: int,
    dimensions: int,
    joined: bool,
    every: int,
    wrongs: tuple[float, ...],
    seeds: str,
    compare: bool,
    cost: bool,
    page: bool,
) -> None:
    """Simulate months, and write the page."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    work.mkdir(parents=True, exist_ok=True)
    low, _, high = seeds.partition("-")
    if cost:
        for place in data.values():
            write_json(work / _COST, measure_cost(work / "cost", place, impressions))
    for name, place in data.items() if not page and not cost else ():
        dataset = Dataset.open(place, where=dict(entry.split("=", 1) for entry in where) or None)
        vectors = "latent semantic analysis" if name not in features else "all-MiniLM-L6-v2, its first singular vectors"
        settings: dict[str, Any] = {"nights": nights, "impressions": impressions, "every": every}
        settings |= {"shown": shown, "heads": heads, "joined": joined}
        settings["vectors"] = f"{vectors}, {dimensions} wide"
        world = None
        for seed in range(int(low), int(high or low) + 1):
            for wrong in wrongs or WRONG:
                label = f"{name}, joined" if joined else name
                file = work / f"{label.replace(', ', '-')}-{round(100 * wrong)}-{seed}.month.json"
                if file.is_file():
                    continue
                world = world or World.of(dataset, features.get(name), dimensions, joined)
                month = month_of(world, wrong, seed, settings, compare)
                write_json(file, {"set": label, **month})
                total = summary([month])
                promoted, frozen, end = total["promoted"], total["frozen"], total["end"]
                say(f"{file.name}: {promoted} promoted, {100 * frozen:.1f} to {100 * end:.1f}")
    if page:
        write_results(work)


if __name__ == "__main__":
    show_progress()
    main()
