"""The plan-path environments: oracle, laws of the rewards, what published ones got wrong, tasks and maps."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
import sys

import pytest
from gymnasium import error
from hypothesis import example, given
from hypothesis import strategies as st

import llm_envs
from llm_envs.planning.plan_path_tasks import load_plan_path
from llm_envs.tasks import Task, TaskError
from llm_envs.tools.sandbox import RunResult

IDS = ("plan-path-1agent", "plan-path-2agent")
MAPS = (
    ("A..#", ".#..", "...G"),  # 5 moves
    ("A#G", "...", "..."),  # 4
    ("....", ".##.", "A#G."),  # 8
    ("AG",),  # 1
)
TASKS = [
    Task(f"t/{i}", f"map {i}", "", {"map": rows, "optimal_length": n})
    for i, (rows, n) in enumerate(zip(MAPS, (5, 4, 8, 1), strict=True))
]
SEARCH = """
import sys
rows = sys.stdin.read().split()
find = lambda char: next((r, c) for r, row in enumerate(rows) for c, x in enumerate(row) if x == char)
ways, seen = [(find("A"), [])], {find("A")}
while ways:
    (r, c), way = ways.pop(0)
    if (r, c) == find("G"):
        print(way)
        break
    for move, at in zip("UDLR", ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1))):
        if 0 <= at[0] < len(rows) and 0 <= at[1] < len(rows[0]) and rows[at[0]][at[1]] != "#" and at not in seen:
            seen.add(at)
            ways.append((at, [*way, move]))
"""


def literal_run(code, stdin):
    """Runs ``print('text')`` without a sandbox."""
    (call,) = ast.parse(code).body
    return RunResult("ok", ast.literal_eval(call.value.args[0]) + "\n", "", 0.0, 0, "none", 0)


def make(env_id="plan-path-1agent", index=0, **kwargs):
    env = llm_envs.make(env_id, tasks=TASKS, order_enforcing=False, **kwargs)
    env.reset(seed=0, options={"task_index": index})
    return env


def program(source):
    return f"```python\n{source}\n```"


def letters(plan):
    return f"[{', '.join(plan)}]"


def play(env, *texts):
    """Plays the texts while the episode runs; returns what every agent earned, by part."""
    totals = {agent: {} for agent in env.possible_agents}
    for text in texts:
        if not env.round_agents:
            break
        before = {agent: dict(env.infos[agent]["reward_parts"]) for agent in env.possible_agents}
        actor = env.agent_selection
        env.step(text)
        for agent in env.possible_agents:
            for name, value in env.infos[agent]["reward_parts"].items():
                new = value if agent == actor else value - before[agent].get(name, 0.0)
                totals[agent][name] = totals[agent].get(name, 0.0) + new
    return totals


def where(env, agent="planner_0"):
    """The cell that the newest map in the prompt says the planner is in, in words and in the picture."""
    prompt = env.observe(agent)
    row, column = map(int, re.findall(r"You are at r(\d+)c(\d+)", prompt)[-1])
    picture = prompt[: prompt.rindex("You are at")].splitlines()[-len(env.task.data["map"]) :]
    assert picture[row].split()[1:][column] == "A"
    assert sum(line.count("A") for line in picture) == 1
    return row, column


# ---- rules of a turn ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        ("moves", "[D, D, R, R, R]"),
        ("moves", "down first: [d,d,r,r,r]"),
        ("moves", "['D', 'D', 'R', 'R', 'R']"),
        ("cells", "[r1c0, r2c0, r2c1, r2c2, r2c3]"),
        ("cells", "[R1C0, r02c0, r2c1,r2c2,r2c3]"),
    ],
)
def test_a_shortest_way(notation, text):
    env = make(notation=notation)
    parts = play(env, text)["planner_0"]
    assert parts == pytest.approx({"team": 1, "optimal": 0.5, "step": -0.05, "progress": 0.5})
    assert env.success
    assert env.terminations == {"planner_0": True}


@pytest.mark.parametrize(
    ("notation", "text", "result", "at", "illegal"),
    [
        ("moves", "[R, R, R, D]", "2 moves were made; then R is illegal: there is a wall at r0c3.", (0, 2), True),
        ("moves", "[U]", "0 moves were made; then U is illegal: r0c0 is at the edge of the map.", (0, 0), True),
        ("moves", "[R]", "1 move was made.", (0, 1), False),
        (
            "cells",
            "[r0c1, r1c1, r2c1]",
            "1 move was made; then r1c1 is illegal: there is a wall at r1c1.",
            (0, 1),
            True,
        ),
        ("cells", "[r1c1]", "0 moves were made; then r1c1 is illegal: it is not next to r0c0.", (0, 0), True),
        ("cells", "[r0c0]", "0 moves were made; then r0c0 is illegal: it is not next to r0c0.", (0, 0), True),
        ("cells", "[r0c1, r99c0]", "1 move was made; then r99c0 is illegal: it is not next to r0c1.", (0, 1), True),
        ("cells", "[r0c1, r0c0, r0c1]", "3 moves were made.", (0, 1), False),
    ],
)
def test_a_turn_plays_up_to_the_first_illegal_move(notation, text, result, at, illegal):
    env = make(notation=notation)
    parts = play(env, text)["planner_0"]
    assert result in env.observe("planner_0")
    assert where(env) == at
    assert parts.get("illegal") == (-0.1 if illegal else None)
    assert "invalid" not in parts


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        ("moves", "[r0c1]"), ("moves", "[right]"), ("moves", "[R R]"), ("moves", "[(0, 1)]"), ("moves", "R"),
        ("cells", "[R]"), ("cells", "[0, 1]"), ("cells", "[(0,1)]"), ("cells", "[r-1c0]"), ("cells", "[r0c1000]"),
    ],
)  # fmt: skip
def test_what_is_no_list_in_this_notation_loses_the_turn(notation, text):
    env = make(notation=notation)
    assert play(env, text)["planner_0"] == {"invalid": -0.1}
    assert where(env) == (0, 0)
    form = "[cell, cell, ...]" if notation == "cells" else "[move, move, ...]"
    assert form in env.infos["planner_0"]["invalid_action"]


# ---- what published environments got wrong -----------------------------------------------------------------------


def test_ten_thousand_illegal_moves_earn_one_penalty_and_no_success():
    env = make(max_moves=10_000)
    parts = play(env, *[letters("U" * 10_000)] * 4)["planner_0"]
    assert parts["illegal"] == pytest.approx(-0.4)
    assert sum(parts.values()) == pytest.approx(-0.4)
    assert not env.success
    assert env.truncations == {"planner_0": True}
    assert not env.terminations["planner_0"]
    env = make()
    assert play(env, letters("U" * 10_000))["planner_0"] == {"invalid": -0.1}


@pytest.mark.parametrize("env_id", IDS)
def test_the_prompt_shows_the_current_cell(env_id):
    env = make(env_id)
    for move, at in (("R", (0, 1)), ("R", (0, 2)), ("D", (1, 2))):
        if env_id == "plan-path-2agent":
            env.step("no program")
        env.step(f"[{move}]")
        for agent in env.possible_agents:
            assert where(env, agent) == at


@pytest.mark.parametrize(
    ("index", "walk"), [(0, "RL"), (0, "DU"), (0, "RRLL"), (0, "DDUU"), (1, "DRDLUU"), (1, "DDRULU")]
)
def test_walking_in_circles_earns_nothing(index, walk):
    env = make(index=index)
    parts = play(env, *[letters(walk * (100 // len(walk)))] * 3)["planner_0"]
    assert where(env) == (0, 0)
    assert "illegal" not in parts
    assert parts["progress"] == pytest.approx(0.0)
    assert sum(parts.values()) == pytest.approx(-0.5)


def test_running_out_of_turns_next_to_the_goal_is_no_success():
    env = make(max_rounds=1)
    parts = play(env, "[D, D, R, R]")["planner_0"]
    assert "team" not in parts
    assert (env.success, env.terminations, env.truncations) == (False, {"planner_0": False}, {"planner_0": True})
    assert env.infos["planner_0"]["distance"] == 1


@pytest.mark.parametrize("notation", ["moves", "cells"])
@pytest.mark.parametrize("env_id", IDS)
def test_the_prompt_holds_no_list_that_would_be_played(env_id, notation):
    env = llm_envs.make(env_id, notation=notation, order_enforcing=False)
    for seed in range(20):
        env.reset(seed=seed)
        earned = 0.0
        while env.round_agents:
            actor = env.agent_selection
            env.step(str(env.observe(actor)))
            earned += sum(env.infos[actor]["reward_parts"].values())
            assert actor == "coder_0" or "invalid_action" in env.infos[actor]
        assert env.infos["planner_0"]["moves"] == 0
        assert earned <= -0.4 + 1e-9


def test_the_planner_sees_what_the_coder_did_and_the_coder_what_became_of_it():
    env = make("plan-path-2agent", run=literal_run)
    code = program("print('[D, D, R]')")
    env.step(code)
    assert f"[coder_0]\n{code}\n\n[output of the program]\n[D, D, R]" in env.observe("planner_0")
    env.step("I trust it: [D, D, R]")
    assert "[planner_0]\nI trust it: [D, D, R]\n\n[result]\n3 moves were made." in env.observe("coder_0")


# ---- laws --------------------------------------------------------------------------------------------------------

texts = st.one_of(
    st.lists(st.sampled_from("UDLR"), min_size=1, max_size=30).map(letters),
    st.lists(st.sampled_from("DR"), min_size=1, max_size=8).map(letters),
    st.sampled_from(["", "[]", "[X]", "[U", "R, R"]),
)


def best_failure(env):
    """The most that an episode can earn that ends beside the goal, or does nothing."""
    grid = env._grid
    first = grid.distances[grid.start]
    return max(0.0, *(0.5 * (first - left) / first - 0.01 * (first - left) for left in range(1, first + 1)))


@given(st.integers(0, 3), st.lists(texts, min_size=4, max_size=4))
@example(2, [letters("UU" + "DU" * 48)] * 3 + [letters("RRRDDL")])
def test_laws_of_the_rewards(index, actions):
    env = make(index=index)
    contexts, best = [env._context("planner_0")], best_failure(env)
    parts = {}
    for action in actions:
        if not env.round_agents:
            break
        moves, left = env.infos["planner_0"].get("moves", 0), env._left
        for name, value in play(env, action)["planner_0"].items():
            parts[name] = parts.get(name, 0.0) + value
        contexts.append(env._context("planner_0"))
        info = env.infos["planner_0"]
        if info["moves"] == moves:  # nothing was made: nothing is paid
            assert env._left == left
            assert sum(info["reward_parts"].values()) == pytest.approx(-0.1)
    total, first = sum(parts.values()), env._first_distance
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(contexts))
    assert parts.get("progress", 0.0) == pytest.approx(0.5 * (first - info["distance"]) / first)  # it telescopes
    if env.success:
        assert total > best
        assert info["distance"] == 0
        assert ("optimal" in parts) == (info["moves"] == info["optimal_length"])
    else:
        assert total <= best + 1e-9
        assert "team" not in parts
        assert "optimal" not in parts


@given(st.integers(0, 3), st.lists(texts, min_size=4, max_size=4), st.integers(0, 3))
def test_a_fork_plays_as_if_the_episode_were_replayed(index, actions, at):
    env = make(index=index)
    play(env, *actions[:at])
    fork = env.fork()
    kept = env.observe("planner_0")
    replayed = make(index=index)
    play(replayed, *actions[:at])
    play(fork, *actions[at:])
    play(replayed, *actions[at:])
    assert fork.observe("planner_0") == replayed.observe("planner_0")
    assert (fork.infos, fork.rewards, fork.success) == (replayed.infos, replayed.rewards, replayed.success)
    assert env.observe("planner_0") == kept


# ---- oracle ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("notation", ["moves", "cells"])
@pytest.mark.parametrize("grid_size", [5, 10])
def test_the_oracle_finds_a_shortest_way_in_500_tasks(grid_size, notation):
    env = llm_envs.make(
        "plan-path-1agent", notation=notation, task_options={"grid_size": grid_size}, order_enforcing=False
    )
    lengths = set()
    for index in range(500):
        env.reset(options={"task_index": index})
        plan = env.oracle("planner_0")
        env.step(plan)
        assert env.success, env.task.id
        assert env.infos["planner_0"]["reward_parts"]["optimal"] == 0.5
        assert plan.count(",") + 1 == env.task.data["optimal_length"] == env.infos["planner_0"]["moves"]
        lengths.add(env.task.data["optimal_length"])
    assert set(range(2, grid_size)) <= lengths


@pytest.mark.parametrize("grid_size", [5, 10])
def test_the_oracles_of_the_pair(grid_size):
    env = llm_envs.make(
        "plan-path-2agent", task_options={"grid_size": grid_size}, run=literal_run, order_enforcing=False
    )
    for index in range(100):
        env.reset(options={"task_index": index})
        env.step(env.oracle("coder_0"))
        assert env.infos["coder_0"]["reward_parts"]["program"] == pytest.approx(1.0)
        env.step(env.oracle("planner_0"))
        assert env.success


def test_the_oracle_goes_on_from_where_it_is():
    env = make(index=2)
    play(env, "[U, R, U]")
    play(env, env.oracle("planner_0"))
    assert env.success
    env = make(index=2, max_moves=3)
    play(env, *[letters("UUR"), letters("RRD")])
    assert env.oracle("planner_0") == "[D, L]"


def test_a_real_program_reads_the_map_and_finds_the_way():
    env = llm_envs.make("plan-path-2agent", order_enforcing=False)
    for index in range(5):
        env.reset(options={"task_index": index})
        env.step(program(SEARCH))
        assert env.infos["coder_0"]["program_solves"], env.observe("planner_0")
        assert env.infos["coder_0"]["isolation"] in ("bwrap", "userns")
        printed = env.observe("planner_0").partition("[output of the program]\n")[2].splitlines()[0]
        env.step(printed)
        assert env.success
        assert env.infos["coder_0"]["reward_parts"]["optimal"] == 0.5


# ---- tasks -------------------------------------------------------------------------------------------------------

FINGERPRINT = (
    "import hashlib, json; from llm_envs.planning.plan_path_tasks import load_plan_path as load;"
    "tasks = [load(split, grid_size=size)[i] for split in ('train', 'test') for size in (5, 10) for i in range(20)];"
    "print(hashlib.sha256(json.dumps([t.hash for t in tasks]).encode()).hexdigest())"
)
PINNED = "b61cc01d5d9200634dcd51a4e6f67d33d300671e6e7221e6c753fdf7c845791e"


def test_tasks_are_the_same_in_every_process():
    seen = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "12345")
    }
    assert seen == {PINNED}, "generated maps changed: raise the version of the set"


def test_splits_do_not_overlap():
    train, test = (
        {tuple(load_plan_path(split, grid_size=3)[i].data["map"]) for i in range(500)} for split in ("train", "test")
    )
    assert len(train) > 100
    assert len(test) > 20
    assert not train & test


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid_sise": 5}, "no option 'grid_sise'. Did you mean: 'grid_size'"),
        ({"grid_size": 0}, "plan-path: grid_size must be 2 to 100"),
        ({"grid_size": 3, "min_length": 9}, "no map of 3×3 cells"),
        ({"wall_ratio": 2}, "wall_ratio must be"),
        ({"size": 0}, "size must be a whole number"),
    ],
)
def test_bad_options_are_refused_before_the_first_episode(options, message):
    with pytest.raises(TaskError, match=message):
        llm_envs.make("plan-path-1agent", task_options=options)


def test_maps_from_a_text_file(tmp_path):
    path = tmp_path / "levels.txt"
    path.write_text("\n\nA..#\n.#..\n...G\n\n\nA#G  \n...\n...\n", encoding="utf-8-sig")  # as Windows writes it
    env = llm_envs.make("plan-path-1agent", tasks=str(path), order_enforcing=False)
    assert [(task.id, task.data["optimal_length"]) for task in env.tasks] == [("levels/0", 5), ("levels/1", 4)]
    env.reset(options={"task_index": 1})
    env.step(env.oracle("planner_0"))
    assert env.success


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A.\n.G\n\nA#\n#G\n", r"levels.txt: the map that ends at line 5 cannot be played: no way leads"),
        ("A.\n.G.\n", "must be equally long"),
        ("\n\n", "holds no map"),
    ],
)
def test_a_text_file_that_cannot_be_read(tmp_path, text, message):
    path = tmp_path / "levels.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TaskError, match=message):
        llm_envs.make("plan-path-1agent", tasks=str(path))


def test_a_text_file_that_is_not_there(tmp_path):
    with pytest.raises(TaskError, match=r"cannot be read: .*No such file"):
        llm_envs.make("plan-path-1agent", tasks=str(tmp_path / "none.txt"))


def test_maps_from_a_jsonl_file(tmp_path):
    path = tmp_path / "levels.jsonl"
    rows = [{"map": "A..#\n.#..\n...G", "level": "easy"}, {"map": ["A#G", "...", "..."], "id": "mine"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    env = llm_envs.make("plan-path-1agent", tasks=str(path))
    assert [task.data["optimal_length"] for task in env.unwrapped.tasks] == [5, 4]
    assert env.unwrapped.tasks[0].data["level"] == "easy"
    path.write_text('{"map": "A#G"}\n', encoding="utf-8")
    with pytest.raises(TaskError, match="the map cannot be played: no way leads from the start r0c0"):
        llm_envs.make("plan-path-1agent", tasks=str(path))
    path.write_text('{"question": "A.G", "answer": "[R, R]"}\n', encoding="utf-8")
    with pytest.raises(TaskError, match="no map in any of the columns map"):
        llm_envs.make("plan-path-1agent", tasks=str(path))


@pytest.mark.parametrize(("data", "message"), [({}, "has no map"), ({"map": ["AA", "G."]}, "exactly one start")])
def test_a_task_without_a_playable_map_is_refused(data, message):
    env = llm_envs.make("plan-path-1agent", tasks=[Task("mine/0", "?", "", data)])
    with pytest.raises(error.Error, match=f"mine/0 .*{message}"):
        env.reset(seed=0)
