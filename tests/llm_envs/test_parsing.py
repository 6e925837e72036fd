from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.parsing import InvalidAction, boxed, code_block, moves, one_tag, tag

plain = st.text(st.characters(blacklist_characters="{}\\", blacklist_categories=["Cs"]), min_size=1).filter(str.strip)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{4}", "4"),
        (r"so \boxed{3}, no: \boxed{4}", "4"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {4}", "4"),
        (r"\fbox{4}", "4"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"$\boxed{ x }$ is it", "x"),
        (r"\boxed{1}\boxed{2}\boxed{3}", "3"),
        (r"\boxed{1}" * 40, "1"),
    ],
)
def test_boxed(text, content):
    assert boxed(text) == content


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "No final answer"),
        ("4", "No final answer"),
        ("boxed{4}", "No final answer"),
        (r"\boxed{4", "not closed"),
        (r"\boxed{4} or \boxed{\frac{1}{2}", "not closed"),
        (r"\boxed{}", "empty"),
        (r"\boxed{4} then \boxed{ }", "empty"),
        ("".join(rf"\boxed{{{i}}}" for i in range(10)), "10 different boxed answers"),
    ],
)
def test_not_boxed(text, reason):
    with pytest.raises(InvalidAction, match=reason):
        boxed(text)


@given(plain, plain)
def test_boxed_finds_what_was_boxed(before, content):
    assert boxed(before + r"\boxed{" + content + "}") == content.strip()


@given(st.text())
def test_boxed_never_raises_anything_else(text):
    try:
        content = boxed(text)
    except InvalidAction as problem:
        content = None
        reason = str(problem)
    assert (content in text) if content is not None else reason


@pytest.mark.parametrize(
    ("text", "content"),
    [("<v>yes</v>", "yes"), ("I say <v> YES </v>.", "yes"), ("<v>no</v> yes", "no")],
)
def test_tag(text, content):
    assert tag(text, "v", ("yes", "no")) == content


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("yes", "No <v> tag"),
        ("<v>yes", "found 1 <v> and 0 </v>"),
        ("</v> x <v>yes</v>", "found 1 <v> and 2 </v>"),
        ("</v>yes<v>", "comes before"),
        ("<v>yes</v><v>no</v>", "found 2"),
        ("<v>yes</v><v>yes</v>", "found 2"),
        ("<v></v>", "empty"),
        ("<v>yes|no</v>", "not one of"),
        ("<v>yes or no</v>", "not one of"),
        ("<V>yes</V>", "No <v> tag"),
    ],
)
def test_no_tag(text, reason):
    with pytest.raises(InvalidAction, match=reason):
        tag(text, "v", ("yes", "no"))


def test_tag_with_free_content():
    assert tag("<answer>Paris, France</answer>", "answer") == "Paris, France"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)\n"),
        ("first\n```python\na\n```\nthen\n```py\nb\n```", "b\n"),
        ("```\nx\n```", "x\n"),
        ("```text\nno\n```\n```python\nyes\n```\n```text\nno\n```", "yes\n"),
    ],
)
def test_code_block(text, code):
    assert code_block(text) == code


@pytest.mark.parametrize(
    "text", ["", "print(1)", "```python\nprint(1)", "```js\nx\n```", "```python print(1)```", "```python\n  \n```"]
)
def test_no_code_block(text):
    with pytest.raises(InvalidAction, match="python code block"):
        code_block(text)


@pytest.mark.parametrize("text", ["```a\n" * 200_000, "```" + " " * 900_000 + "x\n", "```py\n" + "   \n" * 250_000])
def test_fences_that_are_never_closed_take_linear_time(text):
    started = time.perf_counter()
    with pytest.raises(InvalidAction, match="python code block"):
        code_block(text)
    assert time.perf_counter() - started < 5.0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<ask>who?</ask>", ("ask", "who?")),
        ("I know. <answer> Paris </answer>", ("answer", "Paris")),
        ("<search>x</search> <answer>Paris</answer>", ("answer", "Paris")),  # a tag that is not asked for is just text
    ],
)
def test_one_of_several_tags(text, found):
    assert one_tag(text, ("ask", "answer")) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "No tag was found. Write <ask>…</ask> or <answer>…</answer>."),
        ("<ask>a</ask><answer>b</answer>", "Found <ask> and <answer>. Write one of them only"),
        ("<ask>a</ask></answer>", "Found <ask> and <answer>"),
        ("<ask>a</ask><ask>b</ask>", "exactly once"),
        ("</answer>x<answer>Paris</answer>", "exactly once"),
        ("</ask>a<ask>", "comes before"),
        ("<ask> </ask>", "is empty"),
        ("<answer>a", "exactly once"),
    ],
)
def test_no_or_several_tags(text, reason):
    with pytest.raises(InvalidAction, match=reason):
        one_tag(text, ("ask", "answer"))


LETTERS = {spelling: letter for letter in "UDLR" for spelling in (letter, letter.lower())}.get


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[U]", "U"),
        ("[U,R , d]", "URD"),
        ("First [D], no: [ U , U ]. Done.", "UU"),  # the last list counts
        ("['U', \"R\"]", "UR"),  # as Python prints a list
        ("[\n  U,\n  R\n]", "UR"),
        ("I [hope] so.\n[L]", "L"),
    ],
)
def test_moves(text, found):
    assert moves(text, LETTERS, limit=3) == list(found)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "No list of moves was found"),
        ("U, R", "No list of moves was found"),
        ("U]", "No list of moves was found"),
        ("]", "No list of moves was found"),
        ("[U", "not closed"),
        ("[U] and then [R, ", "not closed"),  # the earlier list does not stand in for a later one
        ("]U ,R[", "not closed"),
        ("[]", "is empty"),
        ("[ ]", "is empty"),
        ("[U,]", "'' is not a move"),
        ("[U,,R]", "'' is not a move"),
        ("[U R]", "'U R' is not a move"),
        ("[U; R]", "not a move"),
        ("[up]", "'up' is not a move. Write \\[move, move, ...\\]"),
        ("[U, X]", "'X' is not a move"),
        ("[U] is my answer [1]", "'1' is not a move"),  # nor does the earlier list stand in for what is no list
        ("[[U, R]]", "'R]' is not a move"),
        ("['U, R']", '\\"\'U\\" is not a move'),
        ("[move, move, ...]", "'move' is not a move"),
        ("[U, U, U, U]", "4 moves were given; the limit is 3"),
        ("[" + "U," * 400_000 + "U]", "400001 moves were given"),
    ],
)
def test_no_moves(text, reason):
    with pytest.raises(InvalidAction, match=reason):
        moves(text, LETTERS, limit=3)


def test_moves_of_several_words_are_read_by_the_domain():
    def read(item):
        words = item.lower().strip("()").split()
        return " ".join(words) if words[:1] in (["stack"], ["unstack"]) and len(words) == 3 else None

    assert moves("[unstack a b, (STACK  a c)]", read, limit=5) == ["unstack a b", "stack a c"]
    with pytest.raises(InvalidAction, match=r"'stack a' is not a move. Write \[unstack x y, ...\]"):
        moves("[stack a]", read, limit=5, form="[unstack x y, ...]")


@given(st.text())
def test_any_text_is_a_list_of_moves_or_has_a_reason(text):
    try:
        found = moves(text, LETTERS, limit=5)
    except InvalidAction:
        return
    assert set(found) <= set("UDLR")
    assert 1 <= len(found) <= 5


@given(
    st.text(st.characters(blacklist_characters="[]", blacklist_categories=["Cs"])),
    st.lists(st.sampled_from("UDLR"), min_size=1, max_size=5),
)
def test_what_is_said_around_a_list_does_not_change_it(said, plan):
    assert moves(f"{said}[X] {said}[{', '.join(plan)}]{said}", LETTERS, limit=5) == plan
