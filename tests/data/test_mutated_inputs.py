"""Mutated files: read as what they say, or refused in a sentence with file and line (10,000 a reader: benchmarks)."""

from random import Random

import pytest

from gnnretrieval.data.formats.recognise import FORMATS
from tests.data.formats.judging import FINE, judged
from tests.data.formats.mutations import OF_PARQUET, OPERATIONS, READERS, case

READ, IMPORTED = 250, 25  # files a reader


@pytest.mark.parametrize("reader", READERS)
def test_a_mutated_file_is_read_as_it_is_or_refused_with_its_place(reader, tmp_path):
    outcomes = set()
    for seed in range(READ):
        outcome = judged(mutated := case(reader, Random(f"{reader} {seed}")), tmp_path, alone=True)
        assert outcome in FINE, (seed, mutated.operation)
        outcomes.add(outcome)
    assert outcomes == set(FINE)


@pytest.mark.parametrize("reader", READERS)
def test_a_mutated_file_is_imported_as_it_is_or_refused_with_nothing_left(reader, tmp_path):
    for seed in range(IMPORTED):
        (directory := tmp_path / str(seed)).mkdir()
        mutated = case(reader, Random(f"{reader} {seed}"))
        assert judged(mutated, directory) in FINE, (seed, mutated.operation)


def test_every_reader_and_every_operation_takes_part():
    assert {reader.removesuffix("-parquet") for reader in READERS} == {*FORMATS, "trec-run"}
    used = {case(reader, Random(seed)).operation for reader in READERS for seed in range(150)}
    assert used == {operation.__name__.replace("_", " ") for operation in [*OPERATIONS, *OF_PARQUET]}
