"""Files as their publishers lay them out, written by hand from each format's documentation."""

from __future__ import annotations

import gzip
import json
from hashlib import sha256
from pathlib import Path

# https://microsoft.github.io/msmarco/Datasets.html: pid, passage; no quoting, so quotes are text.
COLLECTION = (
    "0\tThe presence of communication amid scientific minds was equally important to the success of the Manhattan "
    'Project as scientific intellect was.\n1\tThe "Manhattan Project" and its atomic bomb helped bring an end to World '
    "War II.\n7\tÀ tab-free passage: 東京, \u200fעברית, 👩\u200d🔬\n"
)
QUERIES = "121352\tdefine extreme\n634306\twhat does chattel mean on credit history\n"
QRELS = "121352\t0\t7\t1\n634306\t0\t1\t1\n"
TOP1000 = "121352\t0\tdefine extreme\tThe presence of\n121352\t7\tdefine extreme\tÀ tab-free\n"
ID_TRIPLES = "121352\t7\t0\n121352\t7\t1\n634306\t1\t7\n"
TRIPLES = (
    "is a little caffeine ok\tWe don’t know a lot\tIt is generally safe\n"
    "is a little caffeine ok\tWe don’t know a lot\tOther\n"
)

# https://github.com/facebookresearch/DPR: psgs_w100.tsv, its training JSON, qas/*.csv.
PSGS = (
    'id\ttext\ttitle\n1\t"Aaron Aaron ( or ; ""Ahärôn"") is a prophet, high priest, and the brother of Moses."\tAaron\n'
    "2\tGod at Sinai granted Aaron the priesthood for himself\tAaron\n"
    '3\t"a line\nbreak and a ""quote"""\t"A ""title"""\n'
)
TRAINING = [
    {
        "dataset": "nq_train_psgs_w100",
        "question": "big little lies season 2 how many episodes",
        "answers": ["seven"],
        "positive_ctxs": [
            {
                "title": "Big Little Lies (TV series)",
                "text": "series garnered several accolades.",
                "score": 1000,
                "title_score": 1,
                "passage_id": "18768923",
            }
        ],
        "negative_ctxs": [
            {
                "title": "Cormac McCarthy",
                "text": "chores of the house",
                "score": 0,
                "title_score": 0,
                "passage_id": "2145653",
            }
        ],
        "hard_negative_ctxs": [
            {"title": "Little People", "text": "final minutes", "score": 14.4, "title_score": 0, "passage_id": "8923"}
        ],
    },
    {
        "question": "who is the brother of moses",
        "answers": ["Aaron"],
        "positive_ctxs": [{"title": "Aaron", "text": "the brother of Moses.", "psg_id": 1}],
        "negative_ctxs": [],
        "hard_negative_ctxs": [{"title": "Cormac McCarthy", "text": "chores of the house", "passage_id": "2145653"}],
    },
]
QA = (
    "who got the first nobel prize in physics\t['Wilhelm Conrad Röntgen']\n"
    'when is the next deadpool movie being released\t"[\'May 18 , 2018\', ""it\'s \\""late\\""""]"\n'
)

# https://rajpurkar.github.io/SQuAD-explorer/, 2.0
SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Super_Bowl_50",
            "paragraphs": [
                {
                    "context": "Super Bowl 50 was an American football game.\nThe Denver Broncos won.",
                    "qas": [
                        {
                            "id": "56be4db0acb8001400a502ec",
                            "question": "Which team won Super Bowl 50?",
                            "answers": [
                                {"text": "Denver Broncos", "answer_start": 49},
                                {"text": "The Denver Broncos", "answer_start": 45},
                            ],
                            "is_impossible": False,
                        },
                        {
                            "id": "5a8d7bf7df8bba001a0f9ab1",
                            "question": "Which team lost?",
                            "answers": [],
                            "plausible_answers": [{"text": "Denver", "answer_start": 49}],
                            "is_impossible": True,
                        },
                    ],
                },
                {"context": "Another paragraph.", "qas": []},
            ],
        }
    ],
}

PARAGRAPHS = [
    f"Super_Bowl_50#{sha256(paragraph['context'].encode()).hexdigest()[:8]}"
    for paragraph in SQUAD["data"][0]["paragraphs"]
]

# https://trec.nist.gov/data/topics_eng/: tags that do not close; https://trec.nist.gov/data/qrels_eng/.
TOPICS = """
<top>

<num> Number: 301
<title> International Organized Crime

<desc> Description:
Identify organizations that participate in international criminal
activity, the activity, and, if possible, collaborating organizations.

<narr> Narrative:
A relevant document must as a minimum identify the organization.

</top>

<top>
<num> Number: 302 </num>
<title> Poliomyelitis and Post-Polio </title>
</top>
"""
# TREC-1 to 3 (https://trec.nist.gov/data/topics_eng/, topics 51 to 150): a head, a domain, titles over several lines,
# concepts and factors, of which a tag closes on a line of its own.
OLD_TOPICS = """\
<top>

<head> Tipster Topic Description

<num> Number:  090

<dom> Domain:  International Economics

<title> Topic:  Data on Proven Reserves of Oil & Natural Gas
Producers

<desc> Description:

Document provides totals or verifiable changes in proven reserve figures.

<smry> Summary:

Document provides totals.

<narr> Narrative:

A relevant document will contain figures.

<con> Concept(s):

1. proven reserves
2. oil, natural gas

<fac> Factor(s):

<nat> Nationality: U.S.
<nat> Nationality: U.K.
</fac>

<def> Definition(s):

</top>
"""
# TREC Deep Learning, https://microsoft.github.io/msmarco/TREC-Deep-Learning-2019: graded, in TREC's own columns.
GRADED_QRELS = "19335 Q0 1017759 0\n19335 Q0 1082489 2\n47923 Q0 1000017 3\n"
# https://trec.nist.gov: six columns, of which the rank is not what orders a run (trec_eval's documentation).
TREC_RUN = "301 Q0 FR940202-2-00150 104 2.129133 STANDARD\n301 Q0 FBIS3-10082 1 9.5 STANDARD\n"
# https://github.com/facebookresearch/DPR, data.retriever.qas.trivia-test: double quotes inside Python's list.
TRIVIA_QA = (
    "Who was the man behind The Chipmunks?\t['David Seville']\n"
    '"Who wrote ""Hamlet""?"\t"[\'Shakespeare\', ""William Shakespeare\'s pen""]"\n'
)
# https://rajpurkar.github.io/SQuAD-explorer/, 1.1: no is_impossible; a title that is percent-encoded.
SQUAD_1 = {
    "data": [
        {
            "title": "Beyonc%C3%A9",
            "paragraphs": [
                {
                    "context": "Beyoncé rose to fame in the late 1990s.",
                    "qas": [
                        {
                            "answers": [{"answer_start": 21, "text": "in the late 1990s"}],
                            "question": "When did Beyoncé rise?",
                            "id": "56be85543aeaaa14008c9063",
                        }
                    ],
                }
            ],
        }
    ],
    "version": "1.1",
}

# https://github.com/beir-cellar/beir/wiki/Load-your-custom-dataset
BEIR_CORPUS = (
    '{"_id" : "doc1", "title": "Albert Einstein", "text": "Albert Einstein was a German-born....", "metadata": {}}\n'
    '{"_id" : "doc2", "title": "", "text": "Wheat beer is a top-fermented beer", "metadata": {"url": "https://x.org"}}\n'
)
BEIR_QUERIES = (
    '{"_id" : "q1", "text": "Who developed the mass-energy equivalence formula?"}\n{"_id" : "q2", "text": "Beer?"}\n'
)
BEIR_QRELS = "query-id\tcorpus-id\tscore\nq1\tdoc1\t1\nq2\tdoc2\t2\n"

FILES = {
    "beir-corpus": ("corpus.jsonl", BEIR_CORPUS),
    "beir-queries": ("queries.jsonl", BEIR_QUERIES),
    "beir-qrels": ("qrels.test.tsv", BEIR_QRELS),
    "msmarco-collection": ("collection.tsv", COLLECTION),
    "msmarco-queries": ("queries.train.tsv", QUERIES),
    "msmarco-triples": ("triples.train.small.tsv", TRIPLES),
    "msmarco-id-triples": ("qidpidtriples.train.full.2.tsv", ID_TRIPLES),
    "msmarco-top1000": ("top1000.dev", TOP1000),
    "trec-qrels": ("qrels.dev.small.tsv", QRELS),
    "trec-topics": ("topics.301-350.txt", TOPICS),
    "dpr-passages": ("psgs_w100.tsv", PSGS),
    "dpr-training": ("biencoder-nq-dev.json", json.dumps(TRAINING, indent=4)),
    "dpr-qa": ("nq-test.qa.csv", QA),
    "squad": ("dev-v2.0.json", json.dumps(SQUAD)),
    "passages": ("docs.csv", 'id,text,title,year\nd1,"one, two",First,1999\nd2,"three\nfour",,2001\n'),
    "queries": ("questions.tsv", "qid\tquestion\tanswers\tkind\nq1\twhat?\ttwo\teasy\nq2\thow?\t\t\n"),
    "qrels": ("clicks.train.csv", "query_id,passage_id,relevance\nq1,d1,1\nq2,d2,0\n"),
}


def published(format_: str, directory: Path, zipped: bool = False) -> Path:
    """The file of a format, in a directory."""
    name, text = FILES[format_]
    path = directory / (f"{name}.gz" if zipped else name)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    return path
