"""Models of requests and answers, for validation and for the OpenAPI description."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gnnretrieval.feedback.thumb_log import Thumb
from gnnretrieval.serve.settings import MAX_CHANGES, MAX_ID, MAX_K, MAX_QUESTION, MAX_SESSION


def _has_words(question: str) -> str:
    if not question.strip():
        raise ValueError("it has no words: give some")
    try:
        question.encode()
    except UnicodeEncodeError:  # JSON can spell half of a surrogate pair
        raise ValueError("it has half of a character: give whole ones") from None
    return question


Question = Annotated[
    str,
    Field(min_length=1, max_length=MAX_QUESTION, description="Some words.", examples=["solve a banded system"]),
    AfterValidator(_has_words),
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SearchRequest(_Request):
    """A question to one encoder."""

    question: Question
    k: int = Field(10, ge=1, le=MAX_K, description="Passages wanted; fewer come where there are fewer.")
    system: Literal["gnn-encoder", "gnn-encoder-one-vector", "dual-encoder"] | None = Field(
        None, description="Which encoder's ranking; none: the index's own."
    )


class SearchParameters(SearchRequest):
    """A question in the address, where numbers are text."""

    model_config = ConfigDict(extra="forbid", strict=False)


class CompareRequest(_Request):
    """A question to both encoders."""

    question: Question
    k: int = Field(10, ge=1, le=MAX_K, description="Passages of each ranking.")


class AnswerRequest(_Request):
    """A question to the reader."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"question": "solve a banded system"}]})

    question: Question


class HitOut(BaseModel):
    """A retrieved passage."""

    rank: int = Field(description="From 1.")
    id: str
    title: str
    text: str
    score: float
    sentence: str | None = Field(None, description="The sentence it was retrieved by, from an index of sentences.")


class _Answer(BaseModel):
    version: str = Field(description="The version of the index that answered: the beginning of its hash.")


class SearchAnswer(_Answer):
    """The ranking of a question."""

    question: str
    system: str
    milliseconds: float = Field(description="From the request's validation to its answer, waiting included.")
    explored: bool = Field(description="Whether neighbours were swapped at random; only with --explore.")
    hits: list[HitOut]


class ReaderAnswer(_Answer):
    """The answer that a reader found, and its place."""

    question: str
    milliseconds: float = Field(description="From the request's validation to its answer, waiting included.")
    answer: str
    probability: float = Field(description="Of this span among all spans of the passages that were read.")
    score: float = Field(description="Log-probability plus weighted retrieval score, by which it was chosen.")
    passage: str = Field(description="Id of the passage that it is from.")
    rank: int = Field(description="Rank of that passage by `POST /search`, from 1.")
    title: str = Field(description="The passage's title.")
    text: str = Field(description="The passage's text.")
    start: int = Field(description="First character of the answer in the text, counted in Unicode code points.")
    end: int = Field(description="The character after its last one.")
    passages: int = Field(description="How many passages were read.")


class MovedOut(HitOut):
    """A retrieved passage with its rank in the other ranking."""

    elsewhere: int | None = Field(description="Its rank in the other ranking; null where it is below `depth`.")
    matched: str | None = Field(
        None,
        description="The training question by which it was found, from an index of several vectors a passage; null: by "
        "its own vector.",
    )


class CompareAnswer(_Answer):
    """The rankings of both encoders."""

    question: str
    milliseconds: float
    depth: int = Field(description="How many passages of each ranking were looked through.")
    dual_encoder: list[MovedOut]
    gnn_encoder: list[MovedOut]
    relevant: list[str] | None = Field(
        description="Ids of the passages labelled relevant, if it is a training question or one of /examples; else "
        "null: not known."
    )
    in_graph: bool = Field(description="Whether it is a training question, so that the graph has its labels already.")
    share_below: float | None = Field(
        description="Share of the training questions whose best score by the dual-encoder is not above this question's."
    )
    unsure: bool = Field(
        description="Whether that share is at most 0.01: the question is unlike those that the index was made for."
    )


class WhatIfRequest(_Request):
    """A change of the graph around one passage, and the question to rank; nothing is saved."""

    question: Question
    passage: str = Field(min_length=1, max_length=MAX_ID, description="Id of the passage.")
    without: list[Annotated[str, Field(min_length=1, max_length=MAX_ID)]] = Field(
        default=[], max_length=MAX_CHANGES, description="Ids of training questions that are left out of the graph."
    )
    asked: list[Question] = Field(
        default=[], max_length=MAX_CHANGES, description="Further training questions that the passage is relevant to."
    )
    scale: float = Field(
        1.0,
        ge=0,
        le=4,
        description="Factor on the messages into this passage: on λ, or layer linear's weights.",
    )
    k: int = Field(10, ge=1, le=MAX_K, description="Passages of each ranking.")


class TouchedOut(BaseModel):
    """A passage whose vector was computed again."""

    id: str
    before: int | None = Field(description="Its rank as it is; null where it is below `depth`.")
    after: int | None = Field(description="Its rank after the change.")
    cosine: float = Field(description="Cosine between its vectors before and after.")


class WhatIfAnswer(_Answer):
    """The GNN-encoder's ranking as it is, and after a change."""

    question: str
    milliseconds: float
    depth: int = Field(description="How many passages of each ranking were looked through.")
    before: list[MovedOut]
    after: list[MovedOut]
    touched: list[TouchedOut] = Field(description="The changed passage, then others that its questions are joined to.")


class FeedbackRequest(_Request):
    """A thumb for a passage that was shown for a question."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "question": "solve a banded system",
                    "shown": ["FIRST-ID", "SECOND-ID"],
                    "passage": "SECOND-ID",
                    "thumb": "up",
                    "session": "8d1f0a52",
                }
            ]
        }
    )

    question: Question
    shown: list[Annotated[str, Field(min_length=1, max_length=MAX_ID)]] = Field(
        min_length=1, max_length=MAX_K, description="Ids of the passages that were shown, in their order, each once."
    )
    passage: str = Field(min_length=1, max_length=MAX_ID, description="Id of the passage, one of the shown ones.")
    thumb: Thumb = Field(description="`withdrawn` takes back what the session gave this passage before.")
    session: str = Field(
        pattern=rf"^[A-Za-z0-9_-]{{8,{MAX_SESSION}}}$",
        description="A random id; the last thumb of a session for a question and passage counts.",
    )

    @model_validator(mode="after")
    def _is_of_a_list(self) -> Self:
        if len(set(self.shown)) < len(self.shown):
            raise ValueError("a passage is twice in shown: give each once")
        if self.passage not in self.shown:
            raise ValueError("the passage is not one of the shown ones: give them all")
        return self


class FeedbackAnswer(_Answer):
    """A thumb that was written."""

    when: datetime = Field(description="Its time in the log, in UTC.")


class PassageOut(_Answer):
    """A passage."""

    id: str
    title: str
    text: str


class QueryOut(_Answer):
    """A training question."""

    id: str
    text: str
    split: str


class NodeOut(BaseModel):
    """A node of the graph."""

    kind: Literal["passage", "query"]
    id: str
    title: str | None = None
    text: str
    split: str | None = None
    edges: int = Field(description="How many neighbours it has.")
    own_attention: float = Field(description="Weight of the node itself in its context.")
    mean_gate: float | None = Field(None, description="Of a passage: mean of the filter gate, 0 to 1.")
    context_scale: float | None = Field(None, description="Of a passage: λ, the factor on the gated context.")
    shift: float | None = Field(None, description="Of a passage: cosine of its vector before and after.")


class FurtherOut(BaseModel):
    """A neighbour of a neighbour."""

    id: str
    text: str
    score: float = Field(description="The dual-encoder's similarity on the edge.")
    rank: int | None = Field(
        description="Rank of the passage for the query; where it was not retrieved, the dual-encoder's among all "
        "passages, or null where that was not counted."
    )
    retrieved: bool = Field(description="Whether the query retrieved the passage; else only its label joins the two.")
    labelled: bool = Field(description="Whether the passage is judged relevant to the query.")
    attention: float = Field(
        description="Weight of the edge, mean over heads; below 0 where the question pushes the passage away."
    )


class NeighborOut(FurtherOut):
    """A neighbour with its own neighbours."""

    edges: int
    own_attention: float
    mean_gate: float | None = None
    neighbors: list[FurtherOut] = Field(description="Its own heaviest neighbours.")


class NeighborsAnswer(_Answer):
    """A node, its neighbours and theirs."""

    node: NodeOut
    neighbors: list[NeighborOut]


class MostFoundOut(BaseModel):
    """A passage that many questions retrieve."""

    id: str
    title: str
    queries: int


class GraphAnswer(_Answer):
    """The graph's figures."""

    passages: int
    queries: int
    k: int = Field(description="Passages a query.")
    edges: int
    dimension: int
    edge_features: list[str]
    queries_per_passage: float = Field(description="Mean.")
    most_queries: int = Field(description="Of one passage.")
    share_never_found: float = Field(description="Share of the passages that no query retrieved.")
    recall: float | None = Field(description="Labelled queries that have their passage among their k; null without.")
    most_found: list[MostFoundOut]
    no_what_if: str | None = Field(description="Why POST /what-if is refused, in one sentence; null: it answers.")


class MapAnswer(_Answer):
    """The map's counts, and what two dimensions keep."""

    passages: int = Field(description="Drawn.")
    all_passages: int = Field(description="In the map; more than are drawn where passages were removed, or are many.")
    questions: int = Field(description="Drawn.")
    all_questions: int
    method: Literal["pca", "umap"]
    variance_kept: float | None = Field(description="Share of the vectors' variance; null of UMAP.")
    displacement_kept: float | None = Field(description="Share of the displacements' squared length; null of UMAP.")
    share_moved: float = Field(description="Share of the passages with another vector than before.")
    after_head: bool = Field(description="Whether all vectors are those after the GNN-encoder's linear heads.")


class MapText(BaseModel):
    """A passage or a training question of the map."""

    row: int
    id: str
    title: str = Field(description="Empty of a question.")
    text: str = Field(description="First words.")


class MapTextsAnswer(_Answer):
    """Passages or training questions of the map."""

    texts: list[MapText]


class ExampleOut(BaseModel):
    """An example question."""

    question: str
    passage: str | None = Field(None, description="The relevant passage.")
    before: int | None = Field(None, description="Its rank by the dual-encoder; null where it is below the run.")
    after: int | None = Field(None, description="Its rank by the GNN-encoder.")


class ExamplesAnswer(_Answer):
    """Example questions: those that gained most, or some training questions of the graph."""

    gained: bool
    questions: list[ExampleOut]


class SliceOut(BaseModel):
    """How a new model ranks some of the held-out questions."""

    name: str
    questions: int
    gain: float = Field(description="Mean RR@10 of the new model minus that of the one before.")
    low: float = Field(description="Lower end of the gain's 90 % interval.")
    high: float = Field(description="Upper end.")


class UpdateGateOut(BaseModel):
    """What the gate measured on the newest questions, which neither model was trained on."""

    questions: int
    served: float = Field(description="Mean RR@10 of the model before.")
    candidate: float = Field(description="Mean RR@10 of the new model.")
    gain: float
    p: float = Field(description="One-sided p-value of the gain.")
    promotes: bool
    slices: list[SliceOut]


class MovedQuestionOut(BaseModel):
    """A held-out question for which the first relevant passage has another rank than before."""

    question: str
    before: int | None = Field(description="Its rank by the model before; null: below 10.")
    after: int | None = Field(description="Its rank by the new model; null: below 10.")


class UpdateAnswer(_Answer):
    """The update that made the served index."""

    number: int = Field(description="Of the version that it made.")
    when: datetime
    decision: str = Field(description="What was promoted, in a sentence.")
    reasons: list[str] = Field(description="Sentences that say why.")
    gate: UpdateGateOut | None = Field(description="null: nothing was compared.")
    moved: list[MovedQuestionOut] = Field(description="Those that moved most; none where the model is an older one.")


class ReloadOut(_Answer):
    """How a reload ended."""

    before: str = Field(description="The version that was served before.")
    failed: bool = Field(description="Whether the version before is served still, since a newer one was not loaded.")
    when: datetime


class StatusAnswer(BaseModel):
    """Whether the server answers: all that a client without the token is told."""

    status: Literal["ready", "failed"]


class HealthAnswer(_Answer, StatusAnswer):
    """Whether the server answers, and what it serves."""

    gnnretrieval: str = Field(description="The version of the program.")
    system: str
    encoder: str
    passages: int
    graph: bool = Field(description="Whether rankings can be compared and explained.")
    feedback: bool = Field(description="Whether POST /feedback takes thumbs.")
    reader: bool = Field(description="Whether POST /answer gives answers.")
    update: bool = Field(description="Whether GET /update tells of the update that made the index.")
    reload: ReloadOut | None = Field(description="How the last reload ended; null: there was none.")
    limits: dict[str, int]


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str
    message: str = Field(description="One sentence.")


class ErrorAnswer(BaseModel):
    """An error."""

    error: ErrorDetail
