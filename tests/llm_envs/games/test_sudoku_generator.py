"""Solver, grader and generator of sudoku against an independent solver and grader; the task sets made of them.

`LLM_ENVS_SUDOKU_PUZZLES` is the number of 9×9 puzzles that are solved again (300; 1,000 take some 20 seconds).
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from gymnasium import error

from llm_envs.games.sudoku import grid_line, is_solved, parse_grid
from llm_envs.games.sudoku_generator import DEFAULT_CLUES, dig, draw_puzzle, random_solution, relabel
from llm_envs.games.sudoku_grading import (
    _hidden_pairs,
    _locked_candidates,
    _naked_pairs,
    hardest_technique,
    solved_by_singles,
)
from llm_envs.games.sudoku_solver import count_solutions, has_other_value, masks, solution_of, solutions
from llm_envs.games.sudoku_tasks import draw_sudoku, load_sudoku_tasks
from llm_envs.tasks import TaskError, split_of

HARDEST = "8..........36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4.."
PUZZLES = {4: 1000, 6: 1000, 9: int(os.environ.get("LLM_ENVS_SUDOKU_PUZZLES", "300"))}


@pytest.fixture(scope="module")
def reference():
    """`sudoku_reference.py`, which shares nothing with the package."""
    spec = importlib.util.spec_from_file_location("sudoku_reference", Path(__file__).with_name("sudoku_reference.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leave_out(grid, cell):
    return grid[:cell] + b"\x00" + grid[cell + 1 :]


# ---- solver --------------------------------------------------------------------------------------------------------


def test_there_are_288_grids_of_four():
    grids = list(solutions(bytes(16)))
    assert len(grids) == len(set(grids)) == 288
    assert all(is_solved(grid, bytes(16)) for grid in grids)


def test_a_known_puzzle():
    puzzle = parse_grid("003020600900305001001806400008102900700000008006708200002609500800203009005010300")
    assert grid_line(solution_of(puzzle)) == (
        "483921657967345821251876493548132976729564138136798245372689514814253769695417382"
    )


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("1... ..3. .4.. ...2", 1),
        ("1..4 ..1. .1.. 4..1", 2),
        ("11.. .... .... ....", 0),  # two in a row
        ("1... .1.. .... ....", 0),  # two in a box
        ("12.. ..3. ...4 ....", 0),  # no value is left for a cell
        ("1... .... .... ....", 2),  # 72 in truth
        (HARDEST, 1),
        (HARDEST[:80] + "4", 0),
        ("." * 81, 2),
    ],
)
def test_solutions_are_counted_up_to_two(line, count):
    assert count_solutions(parse_grid(line)) == count


def test_counting_goes_on_to_any_limit():
    assert count_solutions(parse_grid("1" + "." * 15), limit=1000) == 72


@pytest.mark.parametrize("size", [4, 6, 9])
def test_ambiguous_puzzles_are_solved_as_by_the_reference(reference, size):
    rng = random.Random(size)
    for _ in range(20):
        grid = draw_puzzle(rng, grid_size=size, minimal=True)
        for cell in rng.sample([c for c in range(size * size) if grid[c]], 2):
            fewer = grid_line(leave_out(grid, cell))
            mine = {grid_line(s) for s in itertools.islice(solutions(parse_grid(fewer)), 20)}
            assert len(mine) > 1
            if len(mine) < 20:
                assert mine == set(reference.solve(fewer, 21))
            changed = fewer[:cell] + str(rng.randint(1, size)) + fewer[cell + 1 :]
            assert count_solutions(parse_grid(changed)) == len(reference.solve(changed))


def test_another_value_is_found_exactly_if_the_puzzle_becomes_ambiguous():
    rng = random.Random(3)
    for size in (4, 6):
        puzzle = draw_puzzle(rng, grid_size=size)
        for cell in range(size * size):
            if puzzle[cell]:
                fewer = leave_out(puzzle, cell)
                assert has_other_value(fewer, cell, puzzle[cell]) == (count_solutions(fewer) > 1)


# ---- grader --------------------------------------------------------------------------------------------------------


def test_pointing_by_hand():
    """All places of 1 in the first box lie in row 1, so 1 leaves the rest of row 1."""
    shape = masks(4)
    places = [shape.full] * 4
    places[0] &= ~(1 << 4 | 1 << 5)  # no 1 in r2c1, r2c2
    before = places[0]
    assert _locked_candidates(places, shape)
    removed = before & ~places[0]
    assert removed & 0b1111 == 0b1100  # r1c3, r1c4
    assert places[1:] == [shape.full] * 3


def test_claiming_by_hand():
    """All places of 1 in row 1 lie in the first box, so 1 leaves the rest of that box."""
    shape = masks(9)
    places = [shape.full] * 9
    places[0] &= ~0b1_1111_1000  # no 1 in r1c4 to r1c9
    before = places[0]
    assert _locked_candidates(places, shape)
    assert before & ~places[0] == 0b111 << 9 | 0b111 << 18  # r2c1 to r2c3, r3c1 to r3c3
    assert places[1:] == [shape.full] * 8


# 1 and 2 not in r1c3, r1c4, r2c1, r2c2; 3 and 4 not in r1c1, r1c2, r2c3, r2c4.
TWO_PAIRS = [0xFFFF & ~0b0011_1100] * 2 + [0xFFFF & ~0b1100_0011] * 2


def test_naked_pairs_by_hand():
    """r1c1 and r1c2 hold 1 or 2 only: neither stands elsewhere in row 1 or in the first box.

    That leaves 3 or 4 in the rest of row 1 and of the first box, so that neither stands in r2c3 and r2c4.
    """
    shape = masks(4)
    places = [shape.full] * 4
    places[2] &= ~0b11
    places[3] &= ~0b11
    assert _naked_pairs(places, shape)
    assert places == TWO_PAIRS


def test_hidden_pairs_by_hand():
    """1 and 2 have only r1c1 and r1c2 in row 1: 3 and 4 leave those cells.

    In the second box 1 and 2 have only r2c3 and r2c4, and 3 and 4 leave those too; and so on.
    """
    shape = masks(4)
    places = [shape.full] * 4
    places[0] &= ~0b1100
    places[1] &= ~0b1100
    assert _hidden_pairs(places, shape)
    assert places == TWO_PAIRS


def test_nothing_is_ruled_out_where_nothing_is_known():
    shape = masks(6)
    for technique in (_locked_candidates, _naked_pairs, _hidden_pairs):
        places = [shape.full] * 6
        assert not technique(places, shape)
        assert places == [shape.full] * 6


@pytest.mark.parametrize(
    ("line", "technique"),
    [
        ("1234 3412 2143 432.", "naked single"),
        ("1... ..3. .4.. ...2", "naked single"),
        (HARDEST, "search"),
        ("4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......", "pair"),
    ],
)
def test_grades_of_known_puzzles(reference, line, technique):
    puzzle = parse_grid(line)
    assert hardest_technique(puzzle) == technique
    assert reference.grade(grid_line(puzzle)) == technique


@pytest.mark.parametrize(("size", "count"), [(4, 100), (6, 100), (9, 40)])
def test_grades_agree_with_an_independent_grader(reference, size, count):
    rng = random.Random(size)
    found = set()
    for index in range(count):
        puzzle = draw_puzzle(rng, grid_size=size, minimal=index % 2 == 0)
        found.add(hardest_technique(puzzle))
        assert hardest_technique(puzzle) == reference.grade(grid_line(puzzle)), grid_line(puzzle)
    assert size < 9 or found == {"naked single", "hidden single", "pair", "search"}


def test_a_puzzle_without_solution_has_no_grade():
    with pytest.raises(error.Error, match="no solution"):
        hardest_technique(parse_grid("12.. ..3. ...4 ...."))


def test_every_minimal_puzzle_of_four_is_easy_and_there_are_85632():
    """Counted for one grid of either kind (96 and 192 grids are equal to it but for symmetry)."""
    total = 0
    for line, alike in (("1234341221434321", 96), ("1234341223414123", 192)):
        grid = parse_grid(line)
        for kept in itertools.chain.from_iterable(itertools.combinations(range(16), k) for k in (4, 5, 6)):
            puzzle = bytes(grid[cell] if cell in kept else 0 for cell in range(16))
            # Most subsets fall to the first test: a cell that may hold two values of which no clue is one.
            if len(set(puzzle) - {0}) < 3 or count_solutions(puzzle) != 1:
                continue
            if all(has_other_value(leave_out(puzzle, cell), cell, grid[cell]) for cell in kept):
                total += alike
                assert solved_by_singles(puzzle, hidden=False)
    assert total == 85_632


# ---- generator -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 6, 9])
def test_generated_puzzles_have_exactly_one_solution(reference, size):
    tasks = load_sudoku_tasks(grid_size=size)
    for index in range(PUZZLES[size]):
        task = tasks[index]
        assert reference.solve(task.data["puzzle"]) == [task.answer], task.id
        blanks = task.data["puzzle"].count(".")
        assert task.data["optimal_length"] == blanks == size * size - task.data["clues"]
        assert DEFAULT_CLUES[size][0] <= task.data["clues"] <= DEFAULT_CLUES[size][1]
        assert task.question.endswith("\n".join(
            " ".join(task.data["puzzle"][start : start + size]) for start in range(0, size * size, size)
        ))  # fmt: skip


@pytest.mark.parametrize("size", [4, 6, 9])
def test_minimal_puzzles_need_every_clue(reference, size):
    rng = random.Random(size)
    for _ in range(10):
        puzzle = draw_puzzle(rng, grid_size=size, minimal=True)
        for cell in range(size * size):
            if puzzle[cell]:
                assert len(reference.solve(grid_line(leave_out(puzzle, cell)))) == 2


@pytest.mark.parametrize(("size", "clues"), [(4, 6), (6, 14), (9, 30), (9, 45), (9, 80)])
def test_the_number_of_clues_can_be_chosen(size, clues):
    for seed in range(5):
        puzzle = draw_puzzle(random.Random(seed), grid_size=size, min_clues=clues, max_clues=clues)
        assert size * size - puzzle.count(0) == clues
        assert count_solutions(puzzle) == 1


@pytest.mark.parametrize(
    ("size", "difficulty", "techniques"),
    [
        (4, "easy", {"naked single"}),
        (6, "easy", {"naked single"}),
        (6, "medium", {"hidden single"}),
        (6, "hard", {"pair", "search"}),
        (9, "easy", {"naked single"}),
        (9, "medium", {"hidden single"}),
        (9, "hard", {"pair", "search"}),
    ],
)
def test_the_difficulty_can_be_chosen(reference, size, difficulty, techniques):
    tasks = load_sudoku_tasks(grid_size=size, difficulty=difficulty)
    for task in tasks[:5]:
        assert task.data["difficulty"] == difficulty
        assert task.data["technique"] == reference.grade(task.data["puzzle"])
        assert task.data["technique"] in techniques
        assert reference.solve(task.data["puzzle"]) == [task.answer]


@pytest.mark.parametrize("size", [4, 6, 9])
def test_renaming_values_keeps_the_puzzle(reference, size):
    puzzle = draw_puzzle(random.Random(size), grid_size=size)
    renamed = relabel(random.Random(1), puzzle)
    assert renamed != puzzle
    assert sorted(map(renamed.count, range(size + 1))) == sorted(map(puzzle.count, range(size + 1)))
    assert len(set(zip(puzzle, renamed, strict=True))) == len(set(puzzle))  # one new name a value, 0 among them
    assert [cell for cell, value in enumerate(puzzle) if not value] == [c for c, v in enumerate(renamed) if not v]
    assert len(reference.solve(grid_line(renamed))) == 1
    assert hardest_technique(renamed) == hardest_technique(puzzle)


def test_a_target_stops_the_digging():
    solution = random_solution(random.Random(1), 6)
    puzzle = dig(random.Random(1), solution, 20, lambda puzzle, cell, value: True)
    assert puzzle.count(0) == 16
    assert dig(random.Random(1), solution, 20, lambda puzzle, cell, value: False) == solution


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid_size": 5}, "one of 4, 6, 9, actual value: 5"),
        ({"difficulty": "impossible"}, "one of easy, medium, hard, actual value: 'impossible'"),
        ({"difficulty": "hard"}, "Every 4×4 sudoku is easy"),
        ({"min_clues": 3}, r"in \[4, 15\] for a 4×4 grid, actual value: 3"),
        ({"grid_size": 9, "max_clues": 81}, r"in \[17, 80\]"),
        ({"min_clues": 8, "max_clues": 6}, r"`min_clues` \(8\) must not be larger"),
        ({"min_clues": True}, "integer"),
        ({"minimal": "yes"}, "True or False"),
        ({"gridsize": 9}, "Did you mean: 'grid_size'"),
        ({"size": 0}, "whole number"),
    ],
)
def test_options_that_are_wrong_are_refused_at_the_start(options, message):
    with pytest.raises(error.Error, match=message):
        load_sudoku_tasks(**options)


def test_what_does_not_exist_is_given_up_with_the_reason(monkeypatch):
    monkeypatch.setattr("llm_envs.games.sudoku_generator.MAX_TRIES", 20)
    with pytest.raises(error.Error, match=r"No 9×9 sudoku with 17 to 18 clues .* in 20 tries"):
        draw_puzzle(random.Random(0), grid_size=9, min_clues=17, max_clues=18)


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_puzzle_is_drawn_for_a_split_at_once(split):
    """A task set draws until the split fits: for the test split that would be ten puzzles for one."""
    rng = random.Random(0)
    assert {split_of(draw_sudoku(rng, split=split, grid_size=6).question) for _ in range(50)} == {split}


# ---- task sets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "count"), [(4, 1000), (6, 500), (9, 100)])
def test_no_puzzle_is_in_both_splits(size, count):
    train, test = (load_sudoku_tasks(split=split, grid_size=size)[:count] for split in ("train", "test"))
    assert not {task.data["puzzle"] for task in train} & {task.data["puzzle"] for task in test}
    assert {split_of(task.question) for task in train} == {"train"}
    assert {split_of(task.question) for task in test} == {"test"}
    assert len({task.data["puzzle"] for task in train}) > 0.98 * count


def test_tasks_are_the_same_in_every_process(repository):
    code = (
        "import json\n"
        "from llm_envs.games.sudoku_tasks import load_sudoku_tasks\n"
        "options = [{'grid_size': n, 'seed': 5, **more} for n in (4, 6, 9) for more in ({}, {'difficulty': 'easy'})]\n"
        "sets = [load_sudoku_tasks(**chosen) for chosen in options]\n"
        "print(json.dumps([[tasks.fingerprint, *(tasks[i].hash for i in (7, 0, 3))] for tasks in sets]))"
    )
    printed = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(repository)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    own = load_sudoku_tasks(grid_size=9, seed=5)
    assert printed[0][4] == [own.fingerprint, *(own[i].hash for i in (7, 0, 3))]
    assert own[0] != load_sudoku_tasks(grid_size=9, seed=6)[0]


def test_drawing_leaves_the_global_generator_alone():
    state = random.getstate()
    draw_puzzle(random.Random(0), grid_size=6)
    assert random.getstate() == state


PUZZLE_FILE = """# two sizes
1.....3..4.....2

003020600900305001001806400008102900700000008006708200002609500800203009005010300
1.....3..4.....2
"""


def test_a_puzzle_file_is_read_line_by_line(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text(PUZZLE_FILE)
    tasks = load_sudoku_tasks(str(file))
    assert [(task.id, task.data["size"], task.data["clues"]) for task in tasks] == [("mine/0", 4, 4), ("mine/1", 9, 32)]
    assert tasks[0].answer == "1324423124133142"
    assert tasks[0].data["difficulty"] == "easy"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1.....3..4......", "more than one solution"),
        ("11....3..4.....2", "no solution"),
        ("1324423124133142", "no blank"),
        ("1.....3..4.....", "found 15"),
        ("1.....3..4.....5", "found 5"),
    ],
)
def test_a_line_that_is_no_puzzle_is_named(tmp_path, line, message):
    file = tmp_path / "mine.sdm"
    file.write_text(f"1.....3..4.....2\n{line}\n")
    with pytest.raises(TaskError, match=rf"mine\.sdm:2: .*{message}"):
        load_sudoku_tasks(file)
    assert len(load_sudoku_tasks(file, skip_bad_rows=True)) == 1


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(TaskError, match=r"cannot read .*none\.txt"):
        load_sudoku_tasks(tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(TaskError, match="not UTF-8"):
        load_sudoku_tasks(tmp_path / "latin.txt")
    with pytest.raises(TaskError, match="no option 'difficulty'"):
        load_sudoku_tasks(tmp_path / "latin.txt", difficulty="easy")


def test_a_file_is_split_by_content(tmp_path):
    file = tmp_path / "many.txt"
    file.write_text("\n".join(grid_line(draw_puzzle(random.Random(seed))) for seed in range(60)))
    everything, train, test = (load_sudoku_tasks(file, split) for split in (None, "train", "test"))
    assert len(train) + len(test) == len(everything)
    assert not {task.question for task in train} & {task.question for task in test}


def test_rows_with_a_puzzle_column_are_read(tmp_path):
    file = tmp_path / "rows.jsonl"
    rows = [{"quizzes": "1.....3..4.....2", "solutions": "wrong"}, {"quizzes": "1.....3..4.....2", "level": 3}]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert load_sudoku_tasks(file)[0].answer == "1324423124133142"
    assert load_sudoku_tasks(file, columns={"puzzle": "quizzes"})[0].data["puzzle"] == "1.....3..4.....2"
    file.write_text(json.dumps({"quiz": 12}))
    with pytest.raises(TaskError, match="must be a text"):
        load_sudoku_tasks(file)
