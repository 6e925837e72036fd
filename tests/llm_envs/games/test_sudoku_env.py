"""The sudoku environments by hand and by law: fills, rewards, the end, the coder's program, the oracle."""

from __future__ import annotations

import timeit
from types import SimpleNamespace

import pytest
from gymnasium import error
from hypothesis import given, settings
from hypothesis import strategies as st

import llm_envs
from llm_envs.games.sudoku import is_solved, parse_grid
from llm_envs.games.sudoku_env import Sudoku1Agent, Sudoku2Agent
from llm_envs.games.sudoku_solver import solutions
from llm_envs.games.sudoku_tasks import load_sudoku_tasks, sudoku_draft
from llm_envs.tasks import ListTaskSet, Task, TaskError

PUZZLE = "1.....3..4.....2"
SOLUTION = "1324423124133142"  # r1 1324, r2 4231, r3 2413, r4 3142
TASK = Task("hand/0", *sudoku_draft(parse_grid(PUZZLE)))
REST = "r1c3=2, r1c4=4, r2c1=4, r2c2=2, r2c4=1, r3c1=2, r3c3=1, r3c4=3, r4c1=3, r4c2=1, r4c3=4"  # all but r1c2=3


def hand(kind=Sudoku1Agent, **kwargs):
    env = kind(tasks=[TASK], **kwargs)
    env.reset(seed=0)
    return env


def turn(env, text):
    """Plays one turn; returns what it brought its agent, by part, without the zeros."""
    agent = env.agent_selection
    env.step(text)
    return {name: pytest.approx(value) for name, value in env.infos[agent]["reward_parts"].items() if value}


def grid_lines(env):
    """The last grid that an agent reads, as one line."""
    lines = env._context(env.possible_agents[0]).splitlines()
    return "".join(lines[-4:]).replace(" ", "")


# ---- turns ---------------------------------------------------------------------------------------------------------


def test_a_puzzle_solved_in_one_turn():
    env = hand()
    parts = turn(env, f"So: [r1c2=3, {REST}]")
    assert parts == {"team": 1.0, "progress": 1.0, "step": -0.12}
    assert env.success
    assert env.terminations["planner_0"]
    assert not env.truncations["planner_0"]
    assert grid_lines(env) == SOLUTION
    assert {k: env.infos["planner_0"][k] for k in ("distance", "moves", "optimal_length")} == {
        "distance": 0,
        "moves": 12,
        "optimal_length": 12,
    }


def test_the_first_prompt_has_rules_and_puzzle_and_no_usable_list():
    env = hand()
    prompt = env.observe("planner_0")
    assert prompt.startswith(TASK.question)
    assert "1 . . .\n. . 3 .\n. 4 . .\n. . . 2" in prompt
    assert SOLUTION not in prompt.replace(" ", "").replace("\n", "")
    assert turn(env, prompt) == {"invalid": -0.1}


@pytest.mark.parametrize(
    ("fill", "reason"),
    [
        ("r1c1=2", "clue"),
        ("r1c1=0", "clue"),
        ("r5c1=1", "1 to 4"),
        ("r1c2=7", "1 to 4"),
        ("r3c1=1", "column 1 already holds a 1, in r1c1"),
        ("r1c4=0", "blank"),
        ("r2c2=1", "the box already holds a 1"),
    ],
)
def test_fills_are_made_up_to_the_first_illegal_one(fill, reason):
    env = hand()
    parts = turn(env, f"[r1c2=3, {fill}, r1c3=2, {fill}]")
    assert parts == {"progress": 1 / 12, "step": -0.01, "illegal": -0.1}
    assert grid_lines(env) == "13....3..4.....2"  # r1c3 was discarded
    assert f"1 move was made; then {fill} is illegal: " in env.observe("planner_0")
    assert reason in env.observe("planner_0")
    assert env.agents
    assert turn(env, f"[{REST}]")["team"] == 1.0


def test_a_fill_conflicts_with_the_grid_as_it_stands():
    env = hand()
    assert turn(env, "[r1c2=2]") == {"step": -0.01}  # legal and wrong: no progress, no penalty
    assert turn(env, "[r1c3=2]") == {"illegal": -0.1}  # right in the end, but r1c2 holds a 2
    assert turn(env, "[r1c2=0, r1c3=2]") == {"step": -0.02, "progress": 1 / 12}
    assert turn(env, f"[r1c2=3, {REST}]")["team"] == 1.0  # r1c3=2 again is legal


def test_a_wrong_fill_may_be_written_over():
    env = hand()
    assert turn(env, "[r1c2=2]") == {"step": -0.01}
    assert turn(env, f"[r1c2=3, {REST}]") == {"team": 1.0, "progress": 1.0, "step": -0.12}


def test_a_full_grid_that_breaks_a_clue_cannot_be_reached():
    env = hand()
    other = next(grid for grid in solutions(bytes(16)) if grid[0] == 2)
    fills = ", ".join(f"r{i // 4 + 1}c{i % 4 + 1}={value}" for i, value in enumerate(other))
    assert turn(env, f"[{fills}]") == {"illegal": -0.1}
    assert not env.success
    assert grid_lines(env) == PUZZLE


def test_one_answer_does_not_solve_other_puzzles():
    """The published check ignored the clues: one grid, printed in the prompt, solved all 400 puzzles."""
    env = Sudoku1Agent()
    env.reset(options={"task_index": 0})
    grid = env.task.answer
    solved = 0
    for index in range(400):
        env.reset(options={"task_index": index})
        puzzle = env.task.data["puzzle"]
        blanks = [i for i in range(16) if puzzle[i] == "."]
        for fills in (range(16), blanks):  # the grid as it is; and only where the puzzle has no clue
            env.reset(options={"task_index": index})
            env.step("[" + ", ".join(f"r{i // 4 + 1}c{i % 4 + 1}={grid[i]}" for i in fills) + "]")
            fits = env.task.answer == grid
            assert env.success == (fits and fills is blanks)
            if env.success:
                assert is_solved(env._state, parse_grid(puzzle))
        solved += env.success
    assert 1 <= solved < 10


def test_setting_and_clearing_earns_nothing():
    env = hand()
    parts = turn(env, "[" + ", ".join(["r1c2=3, r1c2=0"] * 20) + "]")
    assert parts == {"step": -0.4}
    assert turn(env, "[r1c2=3]") == {"progress": 1 / 12, "step": -0.01}
    assert turn(env, "[r1c2=0]") == {"progress": -1 / 12, "step": -0.01}
    assert turn(env, "[r1c2=3]") == {"progress": 1 / 12, "step": -0.01}
    assert env.truncations["planner_0"]
    assert not env.success


def test_right_fills_are_worth_making_on_a_large_grid_that_is_not_solved():
    env = Sudoku1Agent(tasks=load_sudoku_tasks(grid_size=9, minimal=True))
    env.reset(options={"task_index": 0})
    fills = env.oracle("planner_0").strip("[]").split(", ")
    assert len(fills) > 50
    for count in (1, 10, len(fills) - 1):
        env.reset(options={"task_index": 0})
        env.step(f"[{', '.join(fills[:count])}]")
        assert env.rewards["planner_0"] > 0


def test_four_turns_then_the_limit():
    env = hand(max_rounds=4)
    for number in range(4):
        assert env.agents
        assert f"turn {number + 1} of 4" in env.observe("planner_0")
        turn(env, f"[r1c2={2 + number % 2}]")
    assert env.truncations["planner_0"]
    assert not env.terminations["planner_0"]
    assert not env.success


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_progress_telescopes_and_clues_stay(data):
    env = hand(max_rounds=6)
    blanks, total, steps = PUZZLE.count("."), 0.0, 0
    cell = st.builds("r{}c{}={}".format, st.integers(1, 4), st.integers(1, 4), st.integers(0, 4))
    while env.agents and not (env.terminations["planner_0"] or env.truncations["planner_0"]):
        env.step(f"[{', '.join(data.draw(st.lists(cell, min_size=1, max_size=8)))}]")
        parts = env.infos["planner_0"]["reward_parts"]
        total += parts["progress"]
        steps += parts["step"]
        line = grid_lines(env)
        right = sum(a == b != c for a, b, c in zip(line, SOLUTION, PUZZLE, strict=True))
        assert total == pytest.approx(right / blanks)
        assert steps == pytest.approx(-0.01 * env.infos["planner_0"]["moves"])
        assert env.infos["planner_0"]["distance"] == blanks - right
        assert all(clue in (".", value) for clue, value in zip(PUZZLE, line, strict=True))
        assert env.success == (line == SOLUTION)


# ---- oracle --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "split"), [(4, "train"), (6, "train"), (9, "train"), (4, "test")])
def test_the_oracle_solves_every_task(size, split):
    env = Sudoku1Agent(split=split, task_options={"grid_size": size})
    for index in range(500):
        env.reset(options={"task_index": index})
        parts = turn(env, env.oracle("planner_0"))
        blanks = env.task.data["optimal_length"]
        assert env.success, env.task.id
        assert parts == {"team": 1.0, "progress": 1.0, "step": -min(0.01 * blanks, 0.5)}


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 200), st.sampled_from([4, 6]), st.randoms(use_true_random=False))
def test_the_oracle_finds_its_way_out_of_any_grid(index, size, rng):
    env = Sudoku1Agent(tasks=GENERATED[size])
    env.reset(options={"task_index": index})
    for _ in range(60):  # legal fills at random: nearly all wrong, many in each other's way
        fill = f"r{rng.randint(1, size)}c{rng.randint(1, size)}={rng.randint(1, size)}"
        state, made, _ = env._follow(env._state, [fill])
        env._state = state if made else env._state
    wrong = env._distance(env._state)
    plan = env._solution(env._state)
    assert wrong <= len(plan) <= 2 * wrong
    env.step(env.oracle("planner_0"))
    assert env.success or wrong == 0


GENERATED = {size: load_sudoku_tasks(grid_size=size) for size in (4, 6)}


def test_two_wrong_fills_that_wait_for_each_other():
    """r2c2 and r3c2 hold each other's value: one is cleared before the other can be written over."""
    env = Sudoku1Agent(tasks=[Task("t/0", *sudoku_draft(parse_grid(".4.1 2.4. .... .2..")))])
    env.reset(seed=0)
    assert env.task.answer == "3421214343121234"
    assert turn(env, "[r2c2=3, r3c2=1]") == {"step": -0.02}
    plan = env.oracle("planner_0").strip("[]").split(", ")
    assert len(plan) == 12  # 11 blanks of the puzzle, and one clearing
    assert {"r2c2=0", "r3c2=0"} & set(plan)
    assert turn(env, f"[{', '.join(plan)}]")["progress"] == 1.0
    assert env.success


# ---- coder ---------------------------------------------------------------------------------------------------------

SOLVER = """
import sys
grid, clues = ([[0 if c == "." else int(c) for c in row.split()] for row in block.splitlines()]
               for block in sys.stdin.read().strip().split("\\n\\n"))
n = len(clues)
h, w = {4: (2, 2), 6: (2, 3), 9: (3, 3)}[n]
full = [row[:] for row in clues]
def fits(r, c, v):
    return all(full[r][i] != v and full[i][c] != v and full[r // h * h + i // w][c // w * w + i % w] != v
               for i in range(n))
def fill(cell):
    if cell == n * n:
        return True
    r, c = divmod(cell, n)
    if full[r][c]:
        return fill(cell + 1)
    for v in range(1, n + 1):
        if fits(r, c, v):
            full[r][c] = v
            if fill(cell + 1):
                return True
    full[r][c] = 0
    return False
fill(0)
cells = [(r, c) for r in range(n) for c in range(n) if not clues[r][c]]
clear = [f"r{r+1}c{c+1}=0" for r, c in cells if grid[r][c] not in (0, full[r][c])]
print("[" + ", ".join(clear + [f"r{r+1}c{c+1}={full[r][c]}" for r, c in cells if grid[r][c] != full[r][c]]) + "]")
"""


def test_a_solver_written_by_the_coder_earns_its_part_and_mends_wrong_fills():
    env = hand(Sudoku2Agent)
    assert turn(env, "```python\nprint('[r1c2=3]')\n```") == {"program": 0.2}
    turn(env, "[r1c2=2, r2c1=4]")
    assert turn(env, f"```python{SOLVER}```") == {"program": 0.8}
    printed = env._context("planner_0").split("[output of the program]\n")[-1]
    assert printed.startswith("[r1c2=0, r1c2=3, ")
    assert turn(env, f"As the program says: {printed}")["team"] == 1.0
    assert env.rewards["coder_0"] == 1.0
    assert env.success


def test_the_program_reads_grid_and_clues():
    seen = []

    def run(program, stdin):
        seen.append(stdin)
        return SimpleNamespace(status="ok", stdout="[r1c1=1]", stderr="", isolation="none")

    env = hand(Sudoku2Agent, run=run)
    turn(env, "```python\npass\n```")
    turn(env, "[r1c2=3]")
    turn(env, "```python\npass\n```")
    clues = "1 . . .\n. . 3 .\n. 4 . .\n. . . 2\n"
    assert seen == [f"{clues}\n{clues}", f"{clues.replace('1 . . .', '1 3 . .')}\n{clues}"]
    assert "the first grid (the clues)" in env.observe("coder_0")


# ---- tasks and speed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "no puzzle"),
        ({"puzzle": 12}, "no puzzle"),
        ({"puzzle": "1..."}, "found 4"),
        ({"puzzle": "1..............."}, "more than one solution"),
        ({"puzzle": SOLUTION}, "no blank"),
    ],
)
def test_a_task_that_is_no_puzzle_is_refused(data, message):
    env = Sudoku1Agent(tasks=ListTaskSet([Task("t/0", "?", "!", data)]))
    with pytest.raises(error.Error, match=message):
        env.reset(seed=0)


def test_a_task_without_a_puzzle_is_a_task_error():
    with pytest.raises(TaskError, match=r"the task t/0 has no puzzle"):
        Sudoku1Agent(tasks=[Task("t/0", "?", "!")]).reset(seed=0)


def test_the_solution_is_computed_and_not_taken_from_the_task():
    env = Sudoku1Agent(tasks=[Task("t/0", "?", "4" * 16, {"puzzle": PUZZLE})])
    env.reset(seed=0)
    assert turn(env, f"[r1c2=3, {REST}]")["progress"] == 1.0
    assert env.success


@pytest.mark.parametrize("env_id", ["sudoku-1agent", "sudoku-2agent"])
def test_made_by_id_with_a_grid_of_nine(env_id):
    env = llm_envs.make(env_id, task_options={"grid_size": 9, "difficulty": "easy"}, split="test")
    env.reset(seed=1)
    for agent in env.agent_iter():
        _, _, termination, truncation, info = env.last()
        env.step(None if termination or truncation else env.unwrapped.oracle(agent))
    assert info["success"]
    assert env.unwrapped.task.data["size"] == 9
    assert env.unwrapped.task.id.startswith("sudoku/test/")


@pytest.mark.parametrize("size", [4, 9])
def test_a_fork_is_cheap_and_independent(size):
    env = Sudoku1Agent(task_options={"grid_size": size})
    env.reset(options={"task_index": 0})
    first = env.oracle("planner_0").strip("[]").split(", ")[0]
    env.step(f"[{first}]")
    fork = env.fork()
    fork.step(fork.oracle("planner_0"))
    assert fork.success
    assert not env.success
    assert env._state.count(0) == env.task.data["optimal_length"] - 1
    assert min(timeit.repeat(env.fork, number=100, repeat=10)) / 100 < 50e-6
