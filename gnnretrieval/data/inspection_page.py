"""The figures of a dataset as one page with plots that opens offline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log10
from pathlib import Path
from typing import Any

from gnnretrieval import page
from gnnretrieval.data.inspection_text import cut_in_words, shown_grades


def write_page(figures: Mapping[str, Any], path: str | Path) -> None:
    """Write the figures of :func:`~gnnretrieval.data.inspect.inspect_dataset`, or of
    :func:`~gnnretrieval.data.inspect.inspect_files`, as an HTML page (:mod:`gnnretrieval.page`).

    Raises:
        GnnRetrievalError: no file can be written there.
    """
    page.write_page(page_of(figures), path)


def page_of(figures: Mapping[str, Any]) -> str:
    """The page as text."""
    name = figures["name"]
    if "hash" not in figures:
        return page.page_of(
            f"{name}: the dataset",
            name,
            "This dataset cannot be opened before its errors are corrected.",
            [],
            below="".join(_problems(figures["problems"])),
        )
    return page.page_of(
        f"{name}: the dataset",
        name,
        f"{figures['passages']:,} passages, {figures['queries']:,} queries, splits: {', '.join(figures['splits'])}. "
        f"Hash {figures['hash'][:12]}.",
        list(_plots(figures)),
        above=page.warnings_list(figures["warnings"]) + page.tiles(_tiles(figures)),
        below="".join((*_tables(figures), *_problems(figures["problems"]), _files(figures["files"]))),
    )


def _tiles(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield f"{figures['words_per_passage']['median']:,}", "words a passage, the median"
    yield f"{figures['words_per_query']['median']:,}", "words a query, the median"
    if figures["tokens"]:
        for name in ("passages", "queries"):
            counted = figures["tokens"][name]
            limit = "" if counted["limit"] is None else f" at {counted['limit']:,} tokens"
            yield f"{counted['share_cut']:.1%}", f"of {name} are cut{limit}"
    asked = figures["queries_per_passage"]
    yield f"{asked['mean']:.2f}", f"questions a passage; most {asked['max']:,}"
    yield f"{asked['share_without']:.1%}", "of passages relevant to no question"
    near = figures["near_duplicates"]
    for name in ("passages", "queries"):
        yield f"{figures[f'duplicate_{name}']:,}", f"{name} repeat an earlier text"
        yield f"{near[name]['near']:,}", f"{name} with a near-duplicate"
    if figures["test_passages_in_train_share"] is not None:
        yield f"{figures['test_passages_in_train_share']:.1%}", "of test's relevant passages are train's too"


def _plots(figures: Mapping[str, Any]) -> Iterator[page.Plot]:
    for name, what in (("words_per_passage", "passage"), ("words_per_query", "query")):
        its = figures[name]
        yield _histogram(
            f"words-{what}",
            f"Words a {what}",
            its,
            "words",
            f"Median {its['median']:,}, 95 % have at most {its['p95']:,}.",
        )
    if figures["tokens"]:
        for name, what in (("passages", "passage"), ("queries", "query")):
            its = figures["tokens"][name]
            yield _histogram(
                f"tokens-{what}",
                f"Tokens a {what}",
                its,
                "tokens",
                f"As {figures['tokens']['encoder']} reads them: {cut_in_words(its)}.",
                its["limit"],
            )
    asked = figures["queries_per_passage"]
    yield _bars(
        "questions",
        "Questions a passage",
        {"passages": asked["histogram"]},
        ("questions", "passages"),
        "How many questions, of all splits, a passage is relevant to, on a logarithmic scale:"
        f" {asked['share_without']:.1%} of the passages are relevant to none.",
    )
    yield _bars(
        "judgements",
        "Judgements a query",
        {name: split["judgements_a_query"]["histogram"] for name, split in figures["splits"].items()},
        ("judgements", "queries"),
        "By split, on a logarithmic scale.",
    )


def _histogram(
    name: str, title: str, its: Mapping[str, Any], unit: str, meaning: str, limit: int | None = None
) -> page.Plot:
    """Bars as wide as their bins; what is beyond the last of equal width is one bar, named with its range."""
    import plotly.graph_objects as go

    bins = its["histogram"]
    width = bins[0]["to"] - bins[0]["from"] + 1
    equal = [bin_ for bin_ in bins if bin_["to"] - bin_["from"] + 1 == width]
    rest = bins[len(equal) :]
    places = [bin_["from"] + (width - 1) / 2 for bin_ in equal]
    places += [equal[-1]["to"] + 1 + (width - 1) / 2 for _ in rest]
    named = [_range(bin_) for bin_ in bins]
    bars = go.Bar(
        x=places,
        y=[bin_["count"] for bin_ in bins],
        width=[width] * len(bins),
        customdata=named,
        hovertemplate="%{y:,} with %{customdata} " + unit + "<extra></extra>",
    )
    layout: dict[str, Any] = {"xaxis": {"title": {"text": unit}}, "yaxis": {"rangemode": "tozero"}, "bargap": 0}
    if rest:
        meaning += f" The last bar is all of {rest[0]['from']:,} to {rest[-1]['to']:,}."
    if limit is not None and limit <= bins[-1]["to"]:
        at = min(limit, equal[-1]["to"] + width) + 0.5
        layout["shapes"] = [
            {
                "type": "line",
                "x0": at,
                "x1": at,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"dash": "dot", "color": "#888888"},
            }
        ]
        layout["annotations"] = [
            {
                "x": at,
                "y": 1,
                "yref": "paper",
                "text": f"limit {limit:,}",
                "showarrow": False,
                "xanchor": "left",
                "xshift": 4,
            }
        ]
    return page.Plot(name, title, meaning, page.figure_of([bars], **layout))


def _bars(
    name: str,
    title: str,
    series: Mapping[str, Sequence[Mapping[str, int]]],
    units: tuple[str, str],
    meaning: str,
) -> page.Plot:
    import plotly.graph_objects as go

    longest = max(series.values(), key=len)
    most = max(bin_["count"] for bins in series.values() for bin_ in bins)
    traces = [
        go.Bar(
            x=[_range(bin_) for bin_ in bins],
            y=[bin_["count"] for bin_ in bins],
            name=named,
            hovertemplate="%{y:,} " + units[1] + "<extra>" + page.escape(named) + ": %{x}</extra>",
        )
        for named, bins in series.items()
    ]
    return page.Plot(
        name,
        title,
        meaning,
        page.figure_of(
            traces,
            xaxis={
                "title": {"text": units[0]},
                "type": "category",
                "categoryorder": "array",
                "categoryarray": [_range(bin_) for bin_ in longest],
            },
            yaxis={"title": {"text": units[1]}, "type": "log", "dtick": 1, "range": [-0.2, log10(most) + 0.2]},
            bargap=0.15,
            showlegend=len(traces) > 1,
            legend={"orientation": "h", "y": 1.12, "x": 0},
        ),
    )


def _range(bin_: Mapping[str, int]) -> str:
    return f"{bin_['from']:,}" if bin_["from"] == bin_["to"] else f"{bin_['from']:,}-{bin_['to']:,}"


def _tables(figures: Mapping[str, Any]) -> Iterator[str]:
    rows: list[Sequence[str]] = [
        (
            f"{split['queries']:,}",
            f"{split['judgements']:,}",
            f"{split['judgements_per_query']:.2f}",
            f"{split['queries_without_relevant']:,}",
            f"{split['relevant_passages']:,}",
            name,
            shown_grades(split["grades"]),
        )
        for name, split in figures["splits"].items()
    ]
    head = ("queries", "judgements", "a query", "without relevant", "relevant passages", "split", "grades")
    yield page.table("Splits", head, rows, numbers=5)
    leaks = [
        (
            f"{pair['queries']:,}",
            f"{pair['same_id']:,}",
            f"{pair['same_text']:,}",
            f"{pair['near']:,}",
            f"{pair['relevant_passages']:,}",
            f"{pair['share']:.1%}",
            f"{pair['split']} of {pair['of']}",
        )
        for pair in figures["leakage"]
    ]
    head = ("queries", "same id", "same text", "near-duplicate", "relevant passages", "shared", "split")
    yield page.table("Leakage: what a split has of an earlier one", head, leaks, numbers=6)
    examples = [
        (f"{example['similarity']:.2f}", f"{pair['split']} of {pair['of']}", *map(_side, example["pair"]))
        for pair in figures["leakage"]
        for example in pair["examples"]
    ]
    if examples:
        yield page.table("Questions of two splits", ("similarity", "split", "its", "the other's"), examples, numbers=1)
    near = figures["near_duplicates"]
    for name in ("passages", "queries"):
        its = near[name]
        rows = [(f"{example['similarity']:.2f}", *map(_side, example["pair"])) for example in its["examples"]]
        sample = f" in a sample of {its['of']:,}" if its["compared"] < its["of"] else ""
        least = "" if its["is_whole"] else "at least "
        title = f"Near-duplicate {name}: {least}{its['near']:,} of {its['compared']:,}{sample}"
        meaning = f"{near['threshold']:.0%} of the words and pairs of words that either has are both's."
        yield page.table(title, ("similarity", "one", "other"), rows, 1, meaning)
    most = [(f"{passage['queries']:,}", passage["id"]) for passage in figures["queries_per_passage"]["most_asked"]]
    yield page.table("Passages with the most questions", ("questions", "id"), most, numbers=1)


def _side(side: Mapping[str, str]) -> str:
    return f"{side['id']}: {page.short(side['text'])}"


def _problems(problems: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = [
        (
            f"{problem['count']:,}" if not number else "",
            problem["severity"] if not number else "",
            problem["kind"] if not number else "",
            problem["file"] if line["line"] is None else f"{problem['file']}:{line['line']}",
            line["says"],
        )
        for problem in problems
        for number, line in enumerate(problem["lines"])
    ]
    meaning = "Of each kind and file the first lines. With an error, the dataset cannot be opened."
    yield page.table("Problems", ("lines", "severity", "kind", "place", "what is wrong"), rows, 1, meaning)


def _files(files: Mapping[str, Mapping[str, Any]]) -> str:
    rows: list[Sequence[str]] = [
        (
            f"{its['bytes']:,}",
            f"{its['lines']:,}",
            f"{its['not_ascii']:,}",
            f"{its['windows_line_ends']:,}",
            name,
            ", ".join(
                word
                for word, is_so in (("gzipped", its["gzipped"]), ("byte order mark", its["byte_order_mark"]))
                if is_so
            ),
        )
        for name, its in files.items()
    ]
    head = ("bytes", "lines", "not ASCII", "CR LF", "file", "")
    return page.table("Files", head, rows, numbers=4)
