"""Laws of equality over generated answers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from llm_envs.math.grading import Grader, Verdict, decide
from llm_envs.math.normalize import clean, literal

INTEGERS = st.integers(min_value=-(10**50), max_value=10**50)
FRACTIONS = st.builds(Fraction, INTEGERS, st.integers(min_value=1, max_value=10**20))
QUICK = settings(deadline=None)  # the machine may be busy
MODEST = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def grader():
    with Grader(workers=1) as grader:
        yield grader


def in_process(gold: str, answer: str) -> bool:
    """The verdict without any worker: rational answers never need one."""
    return decide(gold, answer, None) is Verdict.CORRECT


def fraction_forms(value: Fraction, factor: int) -> list[str]:
    top, bottom = abs(value.numerator), value.denominator
    sign = "-" if value < 0 else ""
    forms = [
        f"{sign}{top}/{bottom}",
        rf"{sign}\frac{{{top}}}{{{bottom}}}",
        rf"\dfrac{{{sign}{top}}}{{{bottom}}}",
        rf"$ {sign} \tfrac {{{top * factor}}} {{{bottom * factor}}} $.",
        rf"x = {sign}\frac{{{top}}}{{{bottom}}}",
        rf"\left({sign}\frac{{{top}}}{{{bottom}}}\right)",
        rf"{sign}{top} \div {bottom}",
        rf"{sign}{top} \cdot {bottom}^{{-1}}",
    ]
    whole, rest = divmod(top, bottom)
    if whole and rest:
        forms.append(rf"{sign}{whole}\frac{{{rest}}}{{{bottom}}}")
    return forms


@QUICK
@given(INTEGERS)
def test_an_integer_equals_its_forms_and_not_its_neighbours(n):
    gold = str(n)
    for form in (
        gold,
        f"{n}.0",
        f"{n:,}",
        f"${n}$",
        f"  {n} .",
        rf"\boxed{{{n}}}",
        f"n = {n}",
        rf"{n} \text{{ cm}}",
        f"{2 * n}/2",
    ):
        with_worker = Grader().grade(gold=gold, answer=form)
        assert with_worker is Verdict.CORRECT, form
    for other in (n + 1, n - 1, 10 * n + 1, -n if n else 1):
        assert Grader().grade(gold=gold, answer=str(other)) is Verdict.INCORRECT
        assert not in_process(gold, rf"\frac{{{other}}}{{1}}")
    assert not in_process(gold, f"{n}.{'0' * 60}1")


@QUICK
@given(FRACTIONS, st.integers(min_value=2, max_value=1000), st.data())
def test_fractions_equal_their_forms_exactly(value, factor, data):
    forms = fraction_forms(value, factor)
    first, second = data.draw(st.sampled_from(forms)), data.draw(st.sampled_from(forms))
    assert in_process(first, second)
    near = value + Fraction(1, value.denominator * 10**30)
    for other in fraction_forms(near, factor):
        assert not in_process(first, other)
        assert not in_process(other, first)


@QUICK
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=12))
def test_decimals_are_exact_fractions(value):
    text = format(value, "f")
    exact = Fraction(value)
    assert in_process(text, f"{exact.numerator}/{exact.denominator}")
    assert in_process(text, text + "000")
    assert not in_process(text, text + "1")


@QUICK
@given(st.lists(INTEGERS, min_size=2, max_size=6, unique=True), st.randoms(use_true_random=False))
def test_lists_have_no_order_and_points_have(values, generator):
    shuffled = values[:]
    generator.shuffle(shuffled)
    # a space after each comma: "1,234" without one is a single number
    assert in_process(", ".join(map(str, values)), ", ".join(map(str, shuffled)))
    point, other = (f"({', '.join(map(str, v))})" for v in (values, shuffled))
    assert in_process(point, other) == (values == shuffled)
    for value in values:
        assert not in_process(str(value), ", ".join(map(str, values)))
        assert not in_process(", ".join(map(str, values)), str(value))


@QUICK
@given(INTEGERS, INTEGERS)
def test_equality_is_symmetric_and_is_equality_of_values(a, b):
    assert in_process(str(a), f"{b}.0") == in_process(f"{b}.0", str(a)) == (a == b)


EXPRESSIONS = st.recursive(
    st.one_of(
        st.integers(min_value=0, max_value=20).map(str),
        st.sampled_from(["x", "y", r"\pi", r"\sqrt{2}", r"\sqrt{3}", "i", r"\frac{1}{2}", "0.25"]),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: f"({p[0]}+{p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}-{p[1]})"),
        st.tuples(inner, inner).map(lambda p: rf"{p[0]} \cdot {p[1]}"),
        inner.map(lambda e: f"({e})^2"),
    ),
    max_leaves=6,
)


@MODEST
@given(EXPRESSIONS)
def test_expressions_equal_themselves_rewritten_and_not_themselves_plus_one(grader, text):
    for form in (
        f"{text}+1-1",
        f"1 \\cdot {text}",
        f"-(-({text}))",
        f"\\frac{{2({text})}}{{2}}",
        f"({text})+\\sqrt{{2}}-\\sqrt{{2}}",
    ):
        assert grader.grade(gold=text, answer=form) is Verdict.CORRECT
        assert grader.grade(gold=form, answer=text) is Verdict.CORRECT
    for form in (f"({text})+1", f"({text})+10^{{-40}}", f"({text})-\\sqrt{{5}}"):
        assert grader.grade(gold=text, answer=form) is Verdict.INCORRECT
        assert grader.grade(gold=form, answer=text) is Verdict.INCORRECT


@MODEST
@given(EXPRESSIONS, EXPRESSIONS)
def test_sums_and_products_commute_and_verdicts_are_symmetric(grader, a, b):
    assert grader.grade(gold=f"({a})+({b})", answer=f"({b})+({a})") is Verdict.CORRECT
    assert grader.grade(gold=f"({a})({b})", answer=f"({b})({a})") is Verdict.CORRECT
    assert grader.grade(gold=a, answer=b) is grader.grade(gold=b, answer=a)


@MODEST
@given(
    st.integers(min_value=2, max_value=10**12),
    st.integers(min_value=2, max_value=10**6),
    st.integers(min_value=2, max_value=7),
)
def test_roots_are_exact(grader, radicand, factor, degree):
    gold = rf"{factor}\sqrt[{degree}]{{{radicand}}}"
    assert grader.grade(gold=gold, answer=rf"\sqrt[{degree}]{{{factor**degree * radicand}}}") is Verdict.CORRECT
    assert grader.grade(gold=gold, answer=rf"\sqrt[{degree}]{{{factor**degree * radicand + 1}}}") is Verdict.INCORRECT
    assert grader.grade(gold=gold, answer=rf"({factor**degree * radicand})^{{1/{degree}}}") is Verdict.CORRECT


@MODEST
@given(st.integers(min_value=1, max_value=300), st.integers(min_value=1, max_value=300))
def test_powers_of_two_far_below_one_are_told_apart(grader, a, b):
    assume(a != b)
    for left, right in ((f"2^{{-{a}}}", f"2^{{-{b}}}"), (rf"\pi \cdot 2^{{-{a}}}", rf"\pi \cdot 2^{{-{b}}}")):
        assert grader.grade(gold=left, answer=right) is Verdict.INCORRECT
        assert grader.grade(gold=left, answer=left + r" \cdot 1") is Verdict.CORRECT


PIECES = (
    *r"\frac \sqrt { } ( ) [ ] ^ _ 1 2 10 x y \pi , = < \le \pm \cup \infty \{ \} | ! % \$ \log \sin : & \\".split(),
    *(r"\begin{pmatrix}", r"\end{pmatrix}", r"\text{ cm}", r"\text{ or }", r"\binom"),
)


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        st.text(max_size=60),
        st.text(alphabet="0123456789.,+-*/^_(){}[]|\\$% xyeipm=<>!", max_size=60),
        st.lists(
            st.sampled_from(PIECES),
            max_size=25,
        ).map(" ".join),
    )
)
def test_no_text_raises_and_every_text_equals_itself(grader, text):
    assert isinstance(grader.grade(gold="5", answer=text), Verdict)
    assert isinstance(grader.grade(gold=r"1+\sqrt{2}", answer=text), Verdict)
    if literal(clean(text)):  # not blank, LaTeX spaces included
        assert grader.grade(gold=text, answer=f" {text} ") is Verdict.CORRECT
