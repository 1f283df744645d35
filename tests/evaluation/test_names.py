import pytest

from gnnretrieval.errors import InputError
from gnnretrieval.evaluation import parse_measures, split_names


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("mrr@10", "RR@10"),
        ("MRR@10", "RR@10"),
        ("recip_rank", "RR"),
        ("ndcg@10", "nDCG@10"),
        ("NDCG@10", "nDCG@10"),
        ("ndcg", "nDCG"),
        ("ndcg_cut_10", "nDCG@10"),
        ("ndcg_cut.10", "nDCG@10"),
        ("map", "AP"),
        ("map_cut_100", "AP@100"),
        ("map@100", "AP@100"),
        ("P_10", "P@10"),
        ("P.5", "P@5"),
        ("precision@5", "P@5"),
        ("recall_100", "R@100"),
        ("Recall@100", "R@100"),
        ("r@1", "R@1"),
        ("success_5", "Success@5"),
        ("hit@5", "Success@5"),
        ("hits@5", "Success@5"),
        ("hit_rate@5", "Success@5"),
        ("Rprec", "Rprec"),
        ("r_precision", "Rprec"),
        ("bpref", "Bpref"),
        ("iprec_at_recall_0.10", "IPrec@0.1"),
        ("iprec_at_recall_.20", "IPrec@0.2"),
        ("infAP", "infAP"),
        ("set_P", "SetP"),
        ("set_relative_P", "SetP(relative=True)"),
        ("set_recall", "SetR"),
        ("set_F", "SetF"),
        ("set_map", "SetAP"),
        ("judged@10", "Judged@10"),
        ("answer@20", "Answer@20"),
        ("Answer(match='regex')@5", "Answer(match='regex')@5"),
        ("compat", "Compat"),
        (" ap(rel=2)@10 ", "AP(rel=2)@10"),
    ],
)
def test_usual_names_are_those_of_ir_measures_in_every_table(name, canonical):
    assert [str(measure) for measure in parse_measures([name])] == [canonical]


def test_a_list_is_split_at_the_commas_between_measures():
    text = "AP(rel=2,judged_only=True)@100,R@5,nDCG(gains={1: 1, 2: 3})@10,RR"
    assert split_names(text) == ["AP(rel=2,judged_only=True)@100", "R@5", "nDCG(gains={1: 1, 2: 3})@10", "RR"]


def test_measures_are_parsed_once_each_in_order():
    assert list(map(str, parse_measures(["RR@10", " nDCG@10", "MRR@10", "R@1"]))) == ["RR@10", "nDCG@10", "R@1"]
    assert list(map(str, parse_measures(parse_measures(["AP(rel=2)@100"])))) == ["AP(rel=2)@100"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nDGC@10", "unknown measure 'nDGC@10'. Did you mean 'nDCG'"),
        ("ndgc@10", "Did you mean 'ndcg'"),
        ("click@10", "Known: AP, .*nDCG"),
        ("NumRet", "is not offered; docs/evaluation.md says why. Known: AP, "),
        ("ERR@20", "is not offered"),
        ("accuracy@20", "is ambiguous: write Success@20 .*, or Answer@20 "),
        ("Accuracy@5", "is ambiguous: write Success@5 .* first 5.*, or Answer@5 "),
        ("accuracy", "is ambiguous: write Success@20 "),
        ("IPrec@0.105", "with two decimals"),
        ("recall_ten", "unknown measure"),
        ("Answer", "lacks its cutoff: write it like Answer@10"),
        ("Answer(match='fuzzy')@10", "cannot be computed"),
        ("R", "lacks its cutoff: write it like R@10"),
        ("P@0", "1 or more"),
        ("P(rel=0)@5", "1 or more"),
        ("P@ten", "cannot be read"),
        ("RR@10 R@1", "cannot be read"),
        ("AP(2)", "cannot be read"),
        ("AP(rel=", "cannot be read"),
        ("AP(relevance=2)", "has no 'relevance'. Did you mean 'rel'"),
        ("nDCG(gains={1: 'x'})@10", "gains must map"),
        ("nDCG(dcg='exp-log2')@10", "cannot be computed"),
        ("IPrec@5", "recall must be from 0 to 1"),
        ("IPrec(recall='a')", "recall must be from 0 to 1"),
    ],
)
def test_a_measure_that_cannot_be_computed_is_one_sentence(name, message):
    with pytest.raises(InputError, match=message):
        parse_measures([name])


def test_no_measure_is_an_error():
    with pytest.raises(InputError, match="no measure is named"):
        parse_measures([])
