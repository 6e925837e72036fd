"""The Sokoban environments: oracle, laws of the rewards, what published ones got wrong, tasks and levels."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llm_envs
from llm_envs.planning.sokoban import MOVES, apply, illegal_reason, parse_level, render, solved
from llm_envs.planning.sokoban_env import Sokoban1Agent, Sokoban2Agent
from llm_envs.planning.sokoban_solver import shortest
from llm_envs.planning.sokoban_tasks import load_sokoban, load_sokoban_tasks, start_of
from llm_envs.tasks import ListTaskSet, Task, TaskError, split_of

TWO_BOXES = "########\n#@ $ . #\n#  $ . #\n#      #\n########"


def level_task(text, name="mine/0", **data):
    return Task(name, text, "", {"level": text.split("\n"), **data})


def make(text=TWO_BOXES, cls=Sokoban1Agent, data=None, **kwargs):
    env = cls(tasks=[level_task(text, **(data or {}))], **kwargs)
    env.reset(seed=0)
    return env


def board(env, agent="planner_0"):
    """The newest board in the prompt."""
    lines = env.observe(agent).split("\n")
    last = max(i for i, line in enumerate(lines) if line.startswith("Boxes on goals"))
    first = last
    while lines[first - 1] and set(lines[first - 1]) <= set("#-.$*@+"):
        first -= 1
    return "\n".join(lines[first:last])


def earned(env, *texts):
    """What the planner of a one-agent environment earns over the texts, by part."""
    total = {}
    for text in texts:
        if not env.round_agents:
            break
        env.step(text)
        for name, value in env.infos["planner_0"]["reward_parts"].items():
            total[name] = total.get(name, 0.0) + value
    return total


def literal_run(source, stdin):
    """Stands for the sandbox: the program is one print of one literal."""
    (node,) = ast.parse(source).body
    return SimpleNamespace(
        status="ok", stdout=f"{ast.literal_eval(node.value.args[0])}\n", stderr="", isolation=f"none;{stdin}"
    )


# ---- a turn ------------------------------------------------------------------------------------------------------


def test_a_solution_in_one_turn():
    env = make()
    # The upper box two to the right, back and down, the lower one likewise.
    parts = earned(env, "[R, R, R, L, L, D, R, R]")
    assert env.success
    assert env.terminations == {"planner_0": True}
    assert parts == pytest.approx({"team": 10, "step": -0.08, "progress": 1, "boxes": 2})
    assert env.infos["planner_0"]["distance"] == 0
    assert env.infos["planner_0"]["moves"] == 8


def test_what_comes_after_the_solution_is_not_played():
    env = make()
    earned(env, "[R, R, R, L, L, D, R, R, L, L, U, U, U, U]")
    assert env.success
    assert env.infos["planner_0"]["moves"] == 8
    assert "illegal" not in env.infos["planner_0"]["reward_parts"]


def test_the_first_illegal_move_ends_the_turn():
    env = make()
    parts = earned(env, "[D, L, R, R, R]")
    assert parts == pytest.approx({"step": -0.01, "progress": 0, "illegal": -0.05, "boxes": 0})
    assert board(env) == "########\n#--$-.-#\n#@-$-.-#\n#------#\n########"
    assert "1 move was made; then L is illegal: there is a wall to your left" in env.observe("planner_0")
    assert env.infos["planner_0"]["moves"] == 1


def test_no_shaping_for_a_push_that_was_not_made():
    env = make("#######\n#@$$. #\n#   . #\n#######")
    assert earned(env, "[R]") == pytest.approx({"step": 0, "progress": 0, "illegal": -0.05})


def test_the_prompt_shows_legend_and_current_board():
    env = make()
    prompt = env.observe("planner_0")
    assert "Legend: # wall, - floor, . goal, $ box, * box on a goal, @ you, + you on a goal." in prompt
    assert board(env) == TWO_BOXES.replace(" ", "-")
    env.step("[R, R, R]")
    after = env.observe("planner_0")
    assert after.startswith(prompt.split("\n\nYou are")[0])
    assert board(env) == "########\n#---@*-#\n#--$-.-#\n#------#\n########"
    assert "Boxes on goals: 1 of 2." in after
    env.step("nonsense")
    assert board(env) == "########\n#---@*-#\n#--$-.-#\n#------#\n########"


# ---- what published environments got wrong -----------------------------------------------------------------------


def test_two_hundred_times_up_solves_nothing():
    tasks = load_sokoban(size=40)
    for cls in (Sokoban1Agent, Sokoban2Agent):
        env = cls(tasks=tasks, **({"run": literal_run} if cls is Sokoban2Agent else {}))
        for index in range(0, 40, 4):
            env.reset(seed=0, options={"task_index": index})
            solution_is_up = set(shortest(start_of(env.task)).moves) == {"U"}
            while env.round_agents:
                env.step(f"[{', '.join(['U'] * 200)}]")
            assert env.success == solution_is_up
            assert all(env.truncations.values()) != solution_is_up
            assert all(env.infos[agent]["success"] == solution_is_up for agent in env.possible_agents)
            if not solution_is_up:
                assert all(env.rewards[agent] <= 0 or agent == "coder_0" for agent in env.possible_agents)


def test_the_last_turn_can_still_solve():
    env = make(max_rounds=2)
    env.step("[D]")
    env.step("[U, R, R, R, L, L, D, R, R]")
    assert (env.success, env.terminations["planner_0"], env.truncations["planner_0"]) == (True, True, False)


def test_pushing_on_and_off_earns_nothing():
    # On the goal, round it, off again, round it, ...: after each circle everything is as it was.
    text = "#########\n#       #\n# @$.   #\n#       #\n#    $. #\n#########"
    on, off = "R, U, R, R, D", "L, U, L, L, D"
    env = make(text)
    start = board(env)
    parts = earned(env, f"[{on}]", f"[{off}]")
    assert board(env) == start
    assert parts["boxes"] == parts["progress"] == 0
    assert sum(parts.values()) == pytest.approx(-0.1)  # the steps
    env.reset(seed=0)
    env.step(f"[{on}]")
    assert env.infos["planner_0"]["reward_parts"]["boxes"] == 1
    env.step(f"[{off}]")
    assert env.infos["planner_0"]["reward_parts"]["boxes"] == -1


def test_walking_pays_nothing_but_its_cost():
    env = make()
    assert earned(env, "[D, U, D, U]") == pytest.approx({"step": -0.04, "progress": 0, "boxes": 0})


def test_a_lost_board_costs_a_bounded_share():
    env = make()  # two pushes for each box
    env.step("[R, R, R, R]")  # the upper one over its goal and into the corner
    assert board(env) == "########\n#----+$#\n#--$-.-#\n#------#\n########"
    assert env.infos["planner_0"]["reward_parts"] == pytest.approx({"step": -0.04, "progress": -1, "boxes": 0})
    info = env.infos["planner_0"]
    assert info["distance"] == 8  # at most twice the first
    assert env.oracle("planner_0") == "There is no solution from here."
    env.step(env.oracle("planner_0"))
    assert "invalid_action" in env.infos["planner_0"]
    assert not env.success


def test_going_far_away_costs_no_more_than_losing():
    env = make("#######\n#  @  #\n#  $. #\n#     #\n#     #\n#     #\n#     #\n#######")
    assert env._left == 1
    assert earned(env, "[D, D]")["progress"] == -1  # three pushes would be needed now
    assert env.infos["planner_0"]["distance"] == 2
    assert earned(env, "[D]")["progress"] == 0
    env.step(env.oracle("planner_0"))
    assert env.success
    assert env.infos["planner_0"]["reward_parts"]["progress"] == 2


@settings(max_examples=60, deadline=None)
@given(
    index=st.integers(0, 30),
    turns=st.lists(st.lists(st.sampled_from(MOVES), min_size=1, max_size=40), min_size=1, max_size=6),
)
def test_boxes_and_progress_telescope(index, turns):
    env = Sokoban1Agent(tasks=TELESCOPE, max_rounds=6)
    env.reset(seed=0, options={"task_index": index})
    state = start_of(env.task)
    first, distances = state, [env._left]
    total = {}
    for turn in turns:
        if not env.round_agents:
            break
        made, blocked = 0, False
        for move in turn:
            if illegal_reason(state, move) is not None:
                blocked = True
                break
            state, made = apply(state, move), made + 1
            if solved(state):
                break
        env.step(f"[{', '.join(turn)}]")
        parts = env.infos["planner_0"]["reward_parts"]
        assert parts.get("illegal", 0) == (-0.05 if blocked else 0)
        assert parts["step"] == pytest.approx(-0.01 * made)
        assert board(env) == render(state, floor="-")
        assert env.success == solved(state)
        distances.append(env.infos["planner_0"]["distance"])
        for name, value in parts.items():
            total[name] = total.get(name, 0.0) + value

    def on_goals(where):
        return render(where).count("*")

    assert total.get("boxes", 0) == on_goals(state) - on_goals(first)
    assert total.get("progress", 0) == pytest.approx((distances[0] - distances[-1]) / distances[0])
    assert all(0 <= distance <= 2 * distances[0] for distance in distances)
    assert (distances[-1] == 0) == solved(state)


TELESCOPE = load_sokoban(grid_size=7, boxes=2, size=40)

# ---- the pair ----------------------------------------------------------------------------------------------------


def test_the_coder_is_paid_for_moves_that_solve():
    env = make(cls=Sokoban2Agent, run=literal_run)
    assert env.agent_selection == "coder_0"
    env.step("```python\nprint('[R, R, R]')\n```")
    assert env.infos["coder_0"]["reward_parts"] == pytest.approx({"program": 0.2})
    assert env.infos["coder_0"]["isolation"] == f"none;{TWO_BOXES.replace(' ', '-')}\n"  # what it read
    assert "[R, R, R]" in env.observe("planner_0")
    env.step("[R, R, R]")
    env.step("```python\nprint('[L, L, D, R, R]')\n```")  # from the current board
    assert env.infos["coder_0"]["reward_parts"] == pytest.approx({"program": 0.8})
    assert "none;########\n#---@*-#" in env.infos["coder_0"]["isolation"]
    env.step("[L, L, D, R, R]")
    assert env.success
    assert env.infos["coder_0"]["reward_parts"] == pytest.approx({"program": 0.8, "team": 10})
    assert env.infos["planner_0"]["reward_parts"] == pytest.approx(
        {"team": 10, "step": -0.05, "progress": 0.5, "boxes": 1}
    )


def test_a_program_runs_in_the_sandbox():
    env = make(cls=Sokoban2Agent)
    source = "board = open(0).read().split()\nprint(['R'] * 3 if board[1] == '#@-$-.-#' else ['U'])"
    env.step(f"```python\n{source}\n```")
    assert "['R', 'R', 'R']" in env.observe("planner_0")


# ---- generated rooms and their oracle ----------------------------------------------------------------------------

SIZES = {  # grid_size, boxes: tasks in the default run (all of 500 with LLM_ENVS_TEST_TASKS=500)
    (6, 1): 500,
    (7, 2): 500,
    (8, 3): 120,
    (10, 4): 10,
}


@pytest.mark.parametrize(("grid_size", "boxes"), SIZES)
def test_the_oracle_solves_every_room(grid_size, boxes):
    count = int(os.environ.get("LLM_ENVS_TEST_TASKS", SIZES[grid_size, boxes]))
    env = Sokoban1Agent(task_options={"grid_size": grid_size, "boxes": boxes})
    seen = set()
    for index in range(count):
        env.reset(seed=0, options={"task_index": index})
        data, start = env.task.data, start_of(env.task)
        assert len(start.room.widths) == grid_size == max(start.room.widths)
        assert render(start).count("$") == boxes  # none on a goal
        env.step(env.oracle("planner_0"))
        assert env.success
        assert env.infos["planner_0"]["moves"] <= data["solution_length"]
        if "optimal_length" in data:
            assert env.infos["planner_0"]["moves"] == data["optimal_length"] == data["solution_length"] >= 3
        seen.add(env.task.question)
    assert len(seen) > 0.97 * count


def test_the_answer_solves_and_its_length_is_stated():
    for task in load_sokoban(size=60, grid_size=(6, 8), boxes=2):
        state = start_of(task)
        moves = task.answer.strip("[]").split(", ")
        assert len(moves) == task.data["solution_length"]
        for move in moves:
            assert not solved(state)
            state = apply(state, move)
        assert solved(state)
        assert task.question == "\n".join(task.data["level"]).replace(" ", "-")
        assert (len(task.data["level"]), len(task.data["level"][0])) == (6, 8)


def test_the_oracle_goes_on_from_any_board_that_can_be_solved():
    env = Sokoban1Agent(tasks=TELESCOPE)
    for index in range(20):
        env.reset(seed=0, options={"task_index": index})
        plan = shortest(start_of(env.task)).moves
        env.step(f"[{', '.join(plan[: len(plan) // 2])}]")
        rest = env.oracle("planner_0").strip("[]").split(", ")
        assert len(rest) == len(plan) - len(plan) // 2
        env.step(env.oracle("planner_0"))
        assert env.success


@pytest.mark.parametrize(("least", "most"), [(8, 12), (3, 4), (15, None)])
def test_the_length_is_bounded(least, most):
    for task in load_sokoban(size=15, min_length=least, max_length=most):
        assert least <= len(shortest(start_of(task)).moves) == task.data["optimal_length"] <= (most or 1000)


def test_walls_are_as_many_as_asked_and_the_floor_is_one_piece():
    for ratio, walls in ((0.0, 0), (0.25, 4), (0.4, 6)):
        for task in load_sokoban(size=10, wall_ratio=ratio):
            assert task.question.count("#") == 20 + walls


def test_splits_do_not_meet():
    train, test = load_sokoban("train", size=300), load_sokoban("test", size=300)
    assert (train[0].id, test[0].id) == ("sokoban/train/0", "sokoban/test/0")
    assert all(split_of(task.question) == "train" for task in train)
    assert all(split_of(task.question) == "test" for task in test)
    assert not {task.question for task in train} & {task.question for task in test}


DIGEST = """
from llm_envs.planning.sokoban_env import Sokoban1Agent
from llm_envs.tasks import stable_hash
found = []
for options in ({}, {"grid_size": 8, "boxes": 3, "seed": 5}):
    env = Sokoban1Agent(split="test", task_options=options)
    for seed in range(12):
        env.reset(seed=seed)
        env.step("[U, R, D, L]")
        found += [env.task.hash, env.oracle("planner_0"), env.observe("planner_0"), str(env.infos)]
print(stable_hash(*found))
"""


def test_same_episodes_in_every_process(repository):
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            cwd=repository,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(digests) == 1
    assert digests.pop().strip().isdigit()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid_size": 3}, "sokoban: grid_size must be a whole number from 4 to 20, or a pair of them, got 3"),
        ({"grid_size": (6, 6, 6)}, "or a pair of them"),
        ({"grid_size": (6, 2.5)}, "or a pair of them"),
        ({"grid_size": 6.0}, "or a pair of them, got 6.0"),
        ({"grid_size": "66"}, "or a pair of them, got '66'"),
        ({"boxes": 0}, "sokoban: boxes must be a whole number from 1 to 8, got 0"),
        ({"boxes": 8}, "boxes=8 needs 17 cells of floor, a room with grid_size=6 and wall_ratio=0.2 has 13"),
        ({"wall_ratio": 0.9}, "sokoban: wall_ratio must be a number from 0 to 0.7, got 0.9"),
        ({"wall_ratio": "much"}, "wall_ratio must be a number"),
        ({"min_length": 0}, "min_length must be a whole number of at least 1, got 0"),
        ({"min_length": 9, "max_length": 8}, "max_length must be a whole number of at least 9, got 8"),
        ({"wall_ration": 0.1}, "has no option 'wall_ration'. Did you mean: 'wall_ratio'?"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(TaskError) as caught:
        load_sokoban(**options)
    assert message in str(caught.value)


def test_options_that_allow_no_room_are_reported():
    tasks = load_sokoban(grid_size=4, wall_ratio=0, min_length=200)
    with pytest.raises(TaskError, match=r"no Sokoban room with grid_size=\(4, 4\).*min_length=200"):
        tasks[0]


# ---- levels of one's own -----------------------------------------------------------------------------------------


def test_a_file_of_levels(tmp_path):
    path = tmp_path / "levels.txt"
    path.write_text("; 0\n#####\n#@$.#\n#####\n\n; 1\n#.$ @#\n\n", encoding="utf-8")
    tasks = load_sokoban_tasks(path)
    assert [task.id for task in tasks] == ["levels/0", "levels/1"]
    assert tasks[1].question == "#.$-@#"
    env = llm_envs.make("sokoban-1agent", tasks=str(path)).unwrapped
    for index, plan in enumerate(("[R]", "[L, L]")):
        env.reset(seed=0, options={"task_index": index})
        assert env.oracle("planner_0") == plan
        env.step(plan)
        assert env.success
        assert env.infos["planner_0"]["optimal_length"] is None


def test_a_folder_of_levels(tmp_path):
    (tmp_path / "000.txt").write_text("#.$@#\n", encoding="utf-8")
    (tmp_path / "001.txt").write_text("#@$.#\n\n#.$ @#\n", encoding="utf-8")
    assert [task.id for task in load_sokoban_tasks(str(tmp_path))] == ["000/0", "001/0", "001/1"]


def test_a_file_of_rows(tmp_path):
    path = tmp_path / "levels.jsonl"
    rows = [{"level": "#@$.#"}, {"level": ["#####", "#. $@#"], "difficulty": "easy", "id": "b"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    tasks = load_sokoban_tasks(str(path))
    assert tasks[1].data == {"difficulty": "easy", "level": ("#####", "#. $@#")}
    env = Sokoban1Agent(tasks=tasks)
    env.reset(options={"task_index": 1})
    assert env.oracle("planner_0") == "[L, L]"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "; 0\n#@$.#\n\n; 1\n#@$#\n", "a.txt:5: a level has as many boxes"),
        ("a.txt", "#@$.#\n\n#@*#\n", "a.txt: level 1 (from 0) is solved already"),
        ("a.txt", "", "a.txt: there are no levels in it"),
        ("a.jsonl", '{"level": "#@$#"}\n', "the level cannot be played: level:1: a level has as many boxes"),
        ("a.jsonl", '{"level": "#@*#"}\n', "the level is solved already"),
        ("a.jsonl", '{"level": 5}\n', "a level is text or a list of rows, got 5"),
        ("a.jsonl", '{"board": "#@$.#"}\n', "no level in any of the columns level"),
    ],
)
def test_bad_levels_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(TaskError) as caught:
        load_sokoban_tasks(tmp_path / name)
    assert message in str(caught.value)


def test_files_that_are_not_there_are_reported(tmp_path):
    with pytest.raises(TaskError, match=r"none\.txt' cannot be read"):
        load_sokoban_tasks(tmp_path / "none.txt")
    with pytest.raises(TaskError, match="Did you mean: 'sokoban'"):
        load_sokoban_tasks("sokobann")
    with pytest.raises(TaskError, match="has no option 'boxes'"):
        load_sokoban_tasks(tmp_path / "none.txt", boxes=3)


def test_tasks_without_a_level_are_refused():
    env = Sokoban1Agent(tasks=ListTaskSet([Task("t/0", "?", ""), level_task("#@$#", "t/1")]))
    for index, message in ((0, r"the task t/0 has no level; give data="), (1, r"the task t/1 cannot be played")):
        with pytest.raises(TaskError, match=message):
            env.reset(options={"task_index": index})


def test_an_unsolvable_level_can_be_played_and_is_never_solved():
    env = make("######\n#$   #\n#@ . #\n######")
    assert env.oracle("planner_0") == "There is no solution from here."
    assert earned(env, "[R, R]", "[U]") == pytest.approx({"step": -0.03, "progress": 0, "boxes": 0})


def test_boxoban_levels_are_tasks(shared_data):
    tasks = load_sokoban_tasks(shared_data / "planning" / "boxoban_unfiltered_test_000.txt")
    assert (len(tasks), tasks[17].id) == (1000, "boxoban_unfiltered_test_000/17")
    env = Sokoban1Agent(tasks=tasks)
    for index in range(0, 1000, 100):
        env.reset(options={"task_index": index})
        env.step(env.oracle("planner_0"))
        assert env.success
    test = load_sokoban_tasks(shared_data / "planning" / "boxoban_unfiltered_test_000.txt", "test")
    assert 60 < len(test) < 140


def test_rewards_can_be_changed():
    env = make(rewards={"boxes": 0, "goal": 1, "optimal": 0.5}, data={"optimal_length": 8})
    parts = earned(env, "[R, R, R, L, L, D, R, R]")
    assert parts == pytest.approx({"team": 1, "optimal": 0.5, "step": -0.08, "progress": 1, "boxes": 0})


# ---- cost --------------------------------------------------------------------------------------------------------


def test_a_fork_is_cheap():
    env = Sokoban1Agent(task_options={"grid_size": 10, "boxes": 4})
    env.reset(seed=0)
    env.step("[U, D]")
    times = []
    for _ in range(300):
        begin = time.perf_counter()
        env.fork()
        times.append(time.perf_counter() - begin)
    assert sorted(times)[150] < 100e-6
    fork = env.fork()
    fork.step(fork.oracle("planner_0"))
    assert fork.success
    assert not env.success
    assert env._state.room is fork._state.room
    assert parse_level(board(env).replace("-", " ")) == env._state
