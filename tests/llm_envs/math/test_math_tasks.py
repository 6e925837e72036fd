"""The math sets: generated answers against an independent computation, published sets on their own rows, real files."""

from __future__ import annotations

import ast
import itertools
import json
import math
import operator
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from llm_envs.math.procedural import PROCEDURAL
from llm_envs.math.reasoning_gym_sets import REASONING_GYM, _dataset
from llm_envs.math.tasks import MATH_TASKS, PUBLISHED, gold, load_math_tasks, read_math_row
from llm_envs.math.word_problems import TEMPLATES
from llm_envs.task_rows import RowError
from llm_envs.tasks import Task, TaskError, split_of

_OPERATORS: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def value(expression: str, **names: Fraction) -> Fraction:
    """An exact evaluation of ``+ - * /`` and brackets by Python's own grammar."""

    def walk(node: ast.AST) -> Fraction:
        if isinstance(node, ast.Expression):
            return walk(node.body)
        if isinstance(node, ast.Constant):
            return Fraction(str(node.value))
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.UnaryOp):
            assert isinstance(node.op, ast.USub)
            return -walk(node.operand)
        assert isinstance(node, ast.BinOp)
        return _OPERATORS[type(node.op)](walk(node.left), walk(node.right))

    return walk(ast.parse(expression.strip(), mode="eval"))


def numbers(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"-?\d+", text)]


def expression_answer(question: str) -> Fraction:
    return value(re.fullmatch(r"What is (.*)\?", question)[1])


def fraction_answer(question: str) -> Fraction:
    text = re.fullmatch(
        r"Compute \$(.*)\$\. Give the exact value as a fraction in lowest terms or an integer\.", question
    )[1]
    text = re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"(\1/\2)", text)
    return value(text.replace(r"\times", "*").replace(r"\div", "/"))


def equation_answer(question: str) -> Fraction:
    left, right = re.fullmatch(r"Solve for x: (.*) = (.*)\. Give the exact value of x\.", question).groups()

    def difference(x: int) -> Fraction:
        sides = (re.sub(r"(\d)([x(])", r"\1*\2", side) for side in (left, right))
        ours, theirs = (value(re.sub(r"^-(?=[x(])", "-1*", side), x=Fraction(x)) for side in sides)
        return ours - theirs

    slope = difference(1) - difference(0)
    assert difference(2) - difference(1) == slope != 0
    return -difference(0) / slope


def number_theory_answer(question: str) -> int:
    n = numbers(question)
    if "common divisor" in question:
        return next(d for d in range(min(n), 0, -1) if all(k % d == 0 for k in n))
    if "common multiple" in question:
        return next(m for m in itertools.count(max(n), max(n)) if all(m % k == 0 for k in n))
    if "^" in question:
        product = 1
        for _ in range(n[1]):
            product *= n[0]
        return product - product // n[2] * n[2]
    if "remainder" in question:
        return n[0] - n[0] // n[1] * n[1]
    divisors = [d for d in range(1, n[0] + 1) if n[0] % d == 0]
    return len(divisors) if "How many" in question else sum(divisors)


def counting_answer(question: str) -> int:
    if found := re.fullmatch(r'How many times does the letter "(.)" occur in "(\w+)"\?', question):
        return sum(letter == found[1] for letter in found[2])
    if found := re.match(r"In how many different orders can the letters of (\w+) be", question):
        return len(set(itertools.permutations(found[1])))
    n = numbers(question)
    if "committee" in question:
        teachers, students, k, j = n
        return len(list(itertools.combinations(range(teachers), k))) * len(
            list(itertools.combinations(range(students), j))
        )
    if "multiples" in question:
        return len([k for k in range(n[1], n[2] + 1) if k % n[0] == 0])
    return len([k for k in range(n[0], n[1] + 1) if k % n[2] and k % n[3]])


def sequence_answer(question: str) -> int:
    n = numbers(question)
    if found := re.match(r"An arithmetic sequence begins (-?\d+), (-?\d+), (-?\d+), \.\.\.", question):
        first, second, third = map(int, found.groups())
        assert third - second == second - first
        terms = [first + i * (second - first) for i in range(n[-1])]
        return sum(terms) if "sum" in question else terms[-1]
    if question.startswith("A geometric"):
        first, second, third, count = n
        assert second * second == first * third
        return int(first * Fraction(second, first) ** (count - 1))
    if question.startswith("A sequence"):
        terms = n[:2]
        while len(terms) < n[2]:
            terms.append(terms[-2] + terms[-1])
        return terms[n[2] - 1]
    first, factor, shift, count = n
    sign = 1 if ", plus" in question else -1
    term = first
    for _ in range(1, count):
        term = term * factor + sign * shift
    return term


def word_problem_answer(question: str) -> Fraction | int:
    n = numbers(question)
    if "change" in question:
        return n[4] - sum([n[1]] * n[0]) - sum([n[3]] * n[2])
    if "shares the rest" in question:
        packs, size, given, children = n
        return Fraction(packs * size - given, children)
    if "times as many" in question:
        base, times, fewer = n
        return base + times * base + (times * base - fewer)
    if "an hour and works" in question:
        wage, hours, days, bonus, spent = n
        return sum(wage * hours for _ in range(days)) + bonus - spent
    if "drives for" in question:
        return n[4] - n[0] * n[1] - n[2] * n[3]
    if "bicycle" in question:
        price, has, gift, weekly = n
        return Fraction(price - has - gift, weekly)
    if "garden" in question:
        width, longer, price = n
        length = width + longer
        return price * ((width + length) * 2 if "fence" in question else width * length)
    if "years old" in question:
        young, times, years = n
        return (young + years) + (young * times + years)
    if "percent" in question:
        price, count, off, extra = n
        return Fraction(price) * (1 - Fraction(off, 100)) * count + extra
    if "tank" in question:
        level, fill, leak, minutes = n
        for _ in range(minutes):
            level += fill - leak
        return level
    raise AssertionError(question)


ANSWERS = {
    "one-digit": expression_answer,
    "arithmetic": expression_answer,
    "fractions": fraction_answer,
    "linear-equations": equation_answer,
    "word-problems": word_problem_answer,
    "number-theory": number_theory_answer,
    "counting": counting_answer,
    "sequences": sequence_answer,
}
LARGE = sorted(set(PROCEDURAL) - {"one-digit"})


# Generated sets


@pytest.mark.parametrize("name", sorted(PROCEDURAL))
def test_generated_answers_equal_an_independent_computation(name: str) -> None:
    assert ANSWERS.keys() == PROCEDURAL.keys()
    tasks = load_math_tasks(name, size=None if name == "one-digit" else 300)
    for task in tasks:
        assert Fraction(task.answer) == ANSWERS[name](task.question), task
        # In lowest terms, and written as the statement asks.
        assert str(Fraction(task.answer)) == task.answer
        assert gold(task.answer) == task.answer


@pytest.mark.parametrize("name", LARGE)
def test_generated_splits_are_disjoint(name: str) -> None:
    train = {task.question for task in load_math_tasks(name, "train", size=4_000)}
    train |= {task.question for task in load_math_tasks(name, "train", size=1_000, seed=1)}
    test = {task.question for task in load_math_tasks(name, "test", size=500)}
    assert not train & test
    assert {split_of(question) for question in test} == {"test"}


@pytest.mark.parametrize("name", LARGE)
def test_generated_tasks_seldom_repeat(name: str) -> None:
    tasks = load_math_tasks(name, "train")
    assert len(tasks) == 100_000
    step = 7
    sample = [tasks[i].question for i in range(0, 100_000, step)]
    # Of 14,000 tasks; the whole set repeats about `step` times as often, which is under 3 %.
    assert len(set(sample)) > len(sample) * (1 - 0.03 / step * 1.5)


def test_one_digit_is_the_whole_domain_once() -> None:
    train, test = (load_math_tasks("one-digit", split) for split in ("train", "test"))
    questions = [task.question for task in [*train, *test]]
    sums = {f"What is {a} + {b}?" for a in range(10) for b in range(10)}
    differences = {f"What is {a} - {b}?" for a in range(10) for b in range(a + 1)}
    assert len(questions) == len(set(questions)) == 155
    assert set(questions) == sums | differences
    assert len(test) >= 10
    products = load_math_tasks("one-digit", operators="*")
    assert {task.question[8:] for task in products} < {f"{a} * {b}?" for a in range(10) for b in range(10)}
    # A statement keeps its split whatever else is in the set.
    assert {task.question for task in load_math_tasks("one-digit", "test", operators="+")} <= {t.question for t in test}


_ELSEWHERE = """
import json, sys
from llm_envs.math.tasks import load_math_tasks
out = {}
for name in json.loads(sys.argv[1]):
    for split in ("train", "test"):
        tasks = load_math_tasks(name, split)
        out[f"{name} {split}"] = [tasks.fingerprint, *(task.hash for task in tasks[:20])]
sys.stdout.write(json.dumps(out))
"""


def elsewhere(names: list[str], hash_seed: str, repository: Path) -> dict[str, list[str]]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(repository)}
    command = [sys.executable, "-c", _ELSEWHERE, json.dumps(names)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("hash_seed", ["1", "77"])
def test_generated_tasks_are_the_same_in_other_processes(hash_seed: str, repository: Path) -> None:
    for key, there in elsewhere(list(PROCEDURAL), hash_seed, repository).items():
        tasks = load_math_tasks(*key.split())
        assert there == [tasks.fingerprint, *(task.hash for task in tasks[:20])], key


def test_generated_tasks_are_pinned() -> None:
    """Results are compared across machines and months: a change of these needs a new ``VERSION``."""
    pinned = {name: load_math_tasks(name, "test", size=12)[11].question for name in sorted(PROCEDURAL)}
    assert pinned == json.loads((Path(__file__).parent / "pinned_tasks.json").read_text())


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.__name__)
def test_every_word_problem_template_is_drawn(template: Callable) -> None:
    import random

    question = template(random.Random(0)).question
    key = max(re.findall(r"[a-z ]{6,}", question), key=len)
    assert any(key in task.question for task in load_math_tasks("word-problems", size=3_000))


def test_options_shape_the_tasks_and_the_fingerprint() -> None:
    tasks = load_math_tasks("arithmetic", size=200, max_value=5, min_operands=2, max_operands=2, operators="+")
    assert all(re.fullmatch(r"What is [0-5] \+ [0-5]\?", task.question) for task in tasks)
    assert tasks.fingerprint != load_math_tasks("arithmetic", size=200).fingerprint
    assert max(max(numbers(task.question)) for task in load_math_tasks("fractions", size=100, max_denominator=5)) == 5


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("arithmetic", {"siz": 3}, r"'arithmetic' has no option 'siz'\. Did you mean: 'size'\?"),
        ("arithmetic", {"operators": "/"}, r"operators must be some of '\+-\*'.* got '/'"),
        ("arithmetic", {"max_value": 0}, "max_value must be a whole number of at least 2, got 0"),
        ("arithmetic", {"min_operands": 5}, "min_operands=5 is more than max_operands=4"),
        ("one-digit", {"max_value": 3}, "has no option 'max_value'"),
        ("sequences", {"columns": {}}, "has no option 'columns'"),
        ("math500", {"size": 3}, "has no option 'size'"),
        ("rg:gcd", {"level": 3}, "has no option 'level'"),
        ("aritmetic", {}, "Did you mean: 'arithmetic'"),
        ("rg:gdc", {}, "Did you mean: 'rg:gcd'"),
    ],
)
def test_wrong_names_and_options(name: str, options: dict, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load_math_tasks(name, **options)


def test_generation_is_fast() -> None:
    for name in LARGE:
        tasks = load_math_tasks(name)
        start = time.perf_counter()
        for i in range(2_000):
            tasks[i]
        # About 15 µs on a quiet core; the bound leaves room for a busy one.
        assert (time.perf_counter() - start) / 2_000 < 100e-6, name


# Gold answers


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("He made 9 * 2 = <<9*2=18>>18.\n#### 1,080", "1080"),
        ("#### -3", "-3"),
        ("#### 109,200,000", "109200000"),
        ("#### 0.50", "0.50"),
        (27.0, "27"),
        ("27.0", "27"),
        (0.5, "0.5"),
        (-3, "-3"),
        ("073", "73"),
        ("+7", "7"),
        ("-0", "0"),
        ("1,2", "1,2"),
        ("$\\frac{1}{2}$", "\\frac{1}{2}"),
        ("$1$ and $2$", "$1$ and $2$"),
        ("so \\boxed{3}, no, \\boxed{\\frac{a}{b}}", "\\frac{a}{b}"),
        (["2"], "2"),
        (["1", "2.0"], "1, 2"),
    ],
)
def test_gold_texts(written: object, expected: str) -> None:
    assert gold(written) == expected


@pytest.mark.parametrize("written", ["", "  ", "####", [], None, True, float("nan"), {"a": 1}, "\\boxed{"])
def test_unusable_gold(written: object) -> None:
    with pytest.raises(RowError):
        gold(written)


def test_solution_is_the_last_resort() -> None:
    assert read_math_row({"problem": "p", "solution": r"\boxed{4}"}, {}).answer == "4"
    assert read_math_row({"problem": "p", "solution": r"\boxed{4}", "answer": "5"}, {}).answer == "5"
    with pytest.raises(RowError, match="no usable"):
        read_math_row({"problem": "p", "solution": "see above"}, {})
    with pytest.raises(RowError, match="no answer in any of"):
        read_math_row({"problem": "p"}, {})


def test_verl_rows_use_the_question_without_instructions() -> None:
    row = {
        "prompt": [
            {"role": "user", "content": "Twice 600? Let's think step by step and output the answer after ####."}
        ],
        "reward_model": {"style": "rule", "ground_truth": "1200"},
        "extra_info": {"split": "train", "index": 0, "question": "Twice 600?", "answer": "#### 1,200"},
    }
    assert read_math_row(row, {})[:2] == ("Twice 600?", "1200")
    assert read_math_row(row, {"question": "prompt"}).question.startswith("Twice 600? Let's think")


# Published sets, each with the columns it has on the hub

_DAPO = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n{}\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)


def dapo(problem: str, answer: str) -> dict:
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": _DAPO.format(problem), "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": "9a9b6eb4"},
    }


HUB_ROWS: dict[str, dict[str, list[dict]]] = {
    "gsm8k": {
        "train": [{"question": "Half of 96?", "answer": "96/2=48\n#### 48"}],
        "test": [{"question": "Twice 600?", "answer": "#### 1,200"}],
    },
    "math500": {
        "test": [
            {
                "problem": "One half?",
                "solution": "So $\\boxed{\\frac{1}{2}}$",
                "answer": "\\frac{1}{2}",
                "subject": "Algebra",
                "level": 2,
                "unique_id": "test/algebra/1.json",
            }
        ]
    },
    "aime24": {
        "train": [{"id": 60, "problem": "Walk?", "solution": "s", "answer": "025", "url": "u", "year": "2024"}],
    },
    "aime25": {"test": [{"problem": "Base?", "answer": "70", "id": "0"}]},
    "amc23": {"test": [{"id": 0, "question": "Miles?", "answer": "27.0", "url": "u"}]},
    "minerva": {"test": [{"question": "Mass?", "answer": "1.5e-3"}]},
    "olympiadbench": {
        "test": [
            {"id": 1606, "question": "How many?", "solution": ["s"], "final_answer": ["2"], "is_multiple_answer": False}
        ]
    },
    "dapo-math-17k": {"train": [dapo("Find $n$.\n\nIt is even.", "34"), dapo("Find $m$.", "-5")] * 3},
    "polaris-53k": {"train": [{"difficulty": "3/8", "problem": "Area?", "answer": "2\\pi"}]},
    "deepscaler": {"train": [{"problem": "Sum?", "answer": "16", "solution": "s"}]},
}
EXPECTED = {
    ("gsm8k", None): [Task("gsm8k/train/0", "Half of 96?", "48")],
    ("gsm8k", "test"): [Task("gsm8k/test/0", "Twice 600?", "1200")],
    ("math500", None): [
        Task("math500/test/test/algebra/1.json", "One half?", "\\frac{1}{2}", {"subject": "Algebra", "level": 2})
    ],
    ("aime24", "test"): [Task("aime24/test/60", "Walk?", "25")],
    ("aime25", None): [Task("aime25/test/0", "Base?", "70")],
    ("amc23", None): [Task("amc23/test/0", "Miles?", "27")],
    ("minerva", None): [Task("minerva/test/0", "Mass?", "1.5e-3")],
    ("olympiadbench", None): [Task("olympiadbench/test/1606", "How many?", "2")],
    ("dapo-math-17k", None): [
        Task("dapo-math-17k/train/0", "Find $n$.\n\nIt is even.", "34"),
        Task("dapo-math-17k/train/1", "Find $m$.", "-5"),
    ],
    ("polaris-53k", "train"): [Task("polaris-53k/train/0", "Area?", "2\\pi", {"difficulty": "3/8"})],
    ("deepscaler", None): [Task("deepscaler/train/0", "Sum?", "16")],
}


@pytest.mark.parametrize(("name", "split"), EXPECTED)
def test_published_sets_read_the_columns_of_the_hub(
    name: str, split: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    asked = []

    def load_dataset(hub_id: str, config: str | None = None):
        asked.append((hub_id, config))
        return datasets.DatasetDict({key: datasets.Dataset.from_list(rows) for key, rows in HUB_ROWS[name].items()})

    monkeypatch.delenv("LLM_ENVS_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    tasks = load_math_tasks(name, split)
    assert list(tasks) == EXPECTED[name, split]
    assert asked == [(PUBLISHED[name].hub_id, PUBLISHED[name].config)]
    with pytest.raises(TaskError, match="has no split 'dev'; it has: "):
        load_math_tasks(name, "dev")


def test_every_published_set_is_tried() -> None:
    assert HUB_ROWS.keys() == PUBLISHED.keys() == {name for name, _ in EXPECTED}


def test_published_set_out_of_reach_names_the_hub_id_and_the_fix(tmp_path: Path, repository: Path) -> None:
    pytest.importorskip("datasets")
    code = "from llm_envs.math.tasks import load_math_tasks; load_math_tasks('gsm8k', 'test')"
    environment = {**os.environ, "PYTHONPATH": str(repository), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    environment.pop("LLM_ENVS_DATA", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("llm_envs.tasks.TaskError: cannot load the hub data set openai/gsm8k (main)")
    assert "gsm8k/test.jsonl (or .parquet) or gsm8k_test.jsonl, into a folder" in last
    assert last.endswith("point the environment variable LLM_ENVS_DATA at it.")


def test_local_copies_win_over_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_ENVS_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "datasets", None)
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "test.jsonl").write_text(json.dumps({"problem": "Two?", "answer": 2.0}))
    (tmp_path / "aime25.json").write_text(json.dumps([{"problem": "Three?", "answer": "3"}]))
    assert list(load_math_tasks("gsm8k", "test")) == [Task("gsm8k/test/0", "Two?", "2")]
    assert list(load_math_tasks("aime25")) == [Task("aime25/test/0", "Three?", "3")]
    with pytest.raises(TaskError, match="LLM_ENVS_DATA has 'gsm8k' but not its 'train' split"):
        load_math_tasks("gsm8k", "train")
    with pytest.raises(TaskError, match=r"pip install 'llm-envs\[data\]'"):
        load_math_tasks("amc23")
    monkeypatch.setenv("LLM_ENVS_DATA", str(tmp_path / "absent"))
    with pytest.raises(TaskError, match="is not a folder"):
        load_math_tasks("amc23")


# Real files


@pytest.mark.parametrize(
    ("name", "split", "size"),
    [
        ("gsm8k", "train", 7473),
        ("gsm8k", "test", 1319),
        ("math500", None, 500),
        ("aime24", None, 30),
        ("amc23", None, 40),
    ],
)
def test_real_files_by_name(
    name: str, split: str | None, size: int, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_ENVS_DATA", str(shared_data / "math"))
    tasks = load_math_tasks(name, split)
    assert len(tasks) == size
    assert all(task.question and task.answer for task in tasks)
    if name != "math500":
        assert all(re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", task.answer) for task in tasks)
    if name == "math500":
        assert {task.data["level"] for task in tasks} == {1, 2, 3, 4, 5}
        assert tasks[0].answer == r"\left( 3, \frac{\pi}{2} \right)"
    if name == "gsm8k" and split == "test":
        assert [task.answer for task in tasks[:8]] == ["18", "3", "70000", "540", "20", "64", "260", "160"]


def test_real_file_by_path(shared_data: Path) -> None:
    path = shared_data / "math" / "gsm8k_train.jsonl"
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        everything = load_math_tasks(path)
        seconds.append(time.perf_counter() - start)
    assert len(everything) == 7473
    assert min(seconds) < 0.3
    train, test = load_math_tasks(path, "train"), load_math_tasks(path, "test")
    assert len(train) + len(test) == 7473
    assert 650 < len(test) < 850
    assert not {task.question for task in train} & {task.question for task in test}
    assert everything[0].id == "gsm8k_train/0"


# reasoning-gym


def test_reasoning_gym_needs_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(TaskError, match=r"pip install 'llm-envs\[data\]'"):
        load_math_tasks("rg:gcd")


_KNOWN: dict[str, Callable[[str], Fraction | int]] = {
    "chain_sum": lambda q: value(re.search(r"problem: (.*) =", q)[1]),
    "count_bits": lambda q: f"{numbers(q)[-1]:b}".count("1"),
    "count_primes": lambda q: sum(
        k > 1 and all(k % d for d in range(2, math.isqrt(k) + 1)) for k in range(numbers(q)[0], numbers(q)[1] + 1)
    ),
    "decimal_chain_sum": lambda q: value(re.search(r"problem: (.*) =", q)[1]),
    "gcd": lambda q: math.gcd(*numbers(q)),
    "lcm": lambda q: math.lcm(*numbers(q)),
    "products": lambda q: math.prod(numbers(q)),
}


@pytest.mark.parametrize("name", REASONING_GYM)
def test_reasoning_gym_sets_are_gradeable(name: str) -> None:
    pytest.importorskip("reasoning_gym")
    tasks = load_math_tasks(f"rg:{name}", "train", size=40)
    for task in tasks:
        assert re.fullmatch(r"-?\d+(\.\d+|/\d+)?", task.answer), task
        if name in _KNOWN:
            assert Fraction(task.answer) == _KNOWN[name](task.question), task
    items = [_dataset(name)[i] for i in range(20)]
    assert all(_dataset(name).score_answer(item["answer"], item) == 1.0 for item in items)
    test = load_math_tasks(f"rg:{name}", "test", size=20)
    assert not {task.question for task in tasks} & {task.question for task in test}
    assert len({task.question for task in tasks}) >= 39


def test_reasoning_gym_sets_are_the_same_in_other_processes(repository: Path) -> None:
    pytest.importorskip("reasoning_gym")
    names = [f"rg:{name}" for name in REASONING_GYM]
    assert set(names) == {name for name in MATH_TASKS if name.startswith("rg:")}
    for key, there in elsewhere(names, "99", repository).items():
        tasks = load_math_tasks(*key.split())
        assert there == [tasks.fingerprint, *(task.hash for task in tasks[:20])], key
