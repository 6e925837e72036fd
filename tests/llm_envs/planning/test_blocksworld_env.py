"""The blocks-world environments: turns by hand, the pair, oracles, laws of the rewards, generated tasks."""

from __future__ import annotations

import collections
import itertools
import os
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llm_envs
from llm_envs.planning.blocksworld import HAND
from llm_envs.planning.blocksworld_solver import best_plan
from llm_envs.planning.blocksworld_tasks import draw_state, load_blocksworld, load_blocksworld_tasks, problem_of
from llm_envs.tasks import Task, TaskError

IDS = ("blocksworld-1agent", "blocksworld-2agent")
BLOCKS = ("a", "b", "c")
TASKS = [
    # c on a, b alone: a on b on c, in 6 operators.
    Task("t/0", "", "", {
        "blocks": BLOCKS, "initial": ("on c a", "ontable a", "ontable b", "clear b", "clear c", "handempty"),
        "goal": ("on a b", "on b c"), "optimal_length": 6,
    }),
    Task("t/1", "", "", {
        "blocks": BLOCKS,
        "initial": ("ontable a", "ontable b", "ontable c", "clear a", "clear b", "clear c", "handempty"),
        "goal": ("on a b",), "optimal_length": 2,
    }),
]  # fmt: skip
PLAN = ("unstack c a", "put-down c", "pick-up b", "stack b c", "pick-up a", "stack a b")
SENTENCES = (
    "[unstack the c block from on top of the a block, put down the c block, pick up the b block, "
    "stack the b block on top of the c block, pick up the a block, stack the a block on top of the b block]"
)


def make(env_id="blocksworld-1agent", index=0, **kwargs):
    env = llm_envs.make(env_id, tasks=TASKS, order_enforcing=False, **kwargs)
    env.reset(seed=0, options={"task_index": index})
    return env


def listed(operators):
    return f"[{', '.join(operators)}]"


def earned(env, agent):
    return dict(env.infos[agent]["reward_parts"])


# ---- a turn ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        listed(PLAN),
        listed(operator.upper() for operator in PLAN),
        f"First c has to go. {[f'({operator})' for operator in PLAN]}",
        SENTENCES,
    ],
)
def test_a_shortest_plan(text):
    env = make()
    env.step(text)
    assert earned(env, "planner_0") == pytest.approx({"team": 1, "optimal": 0.5, "step": -0.06, "progress": 0.5})
    assert (env.success, env.terminations) == (True, {"planner_0": True})
    assert {"distance": 0, "moves": 6, "optimal_length": 6}.items() <= env.infos["planner_0"].items()


def test_an_illegal_operator_ends_the_turn_where_it_stands():
    env = make()
    env.step(listed([PLAN[0], "pick-up b", *PLAN[1:]]))
    assert earned(env, "planner_0") == pytest.approx({"step": -0.01, "illegal": -0.1, "progress": 0.5 / 6})
    prompt = env.observe("planner_0")
    assert "1 move was made; then pick-up b is illegal: the hand is not empty: it holds c." in prompt
    assert "State: (ontable a) (ontable b) (clear a) (clear b) (holding c)\nGoal: (on a b) (on b c)" in prompt
    env.step(listed(PLAN[1:]))
    assert env.success
    assert earned(env, "planner_0")["optimal"] == 0.5


def test_a_detour_solves_without_the_optimal_part():
    env = make(index=1)
    env.step("[pick-up a, put-down a, pick-up a, stack a b, unstack a b]")
    assert earned(env, "planner_0") == pytest.approx({"team": 1, "step": -0.04, "progress": 0.5})


def test_circles_pay_nothing_and_running_out_of_turns_is_no_success():
    env = make()
    total = collections.Counter()
    for _ in range(4):
        env.step(listed(["unstack c a", "stack c a"] * 50))
        total.update(earned(env, "planner_0"))
    assert total == pytest.approx({"step": -0.5, "progress": 0})
    assert (env.success, env.terminations, env.truncations) == (False, {"planner_0": False}, {"planner_0": True})


@pytest.mark.parametrize("text", ["", "[]", "unstack c a", "[unstack c]", "[unstack c a, fly]", "[pick-up d]", "[a b]"])
@pytest.mark.parametrize("env_id", IDS)
def test_what_is_no_list_of_operators_loses_the_turn(env_id, text):
    env = make(env_id)
    actor = env.agent_selection
    env.step(text)
    assert earned(env, actor) == {"invalid": -0.1}
    assert "State: (ontable a) (ontable b) (on c a)" in env.observe(actor)


# ---- the pair ----------------------------------------------------------------------------------------------------


def test_only_the_critic_plays():
    env = make("blocksworld-2agent")
    assert env.agent_selection == "proposer_0"
    env.step(f"Like this: {listed(PLAN)}")
    assert earned(env, "proposer_0") == {"proposal": 1.0}
    assert {"proposal_legal": True, "proposal_solves": True}.items() <= env.infos["proposer_0"].items()
    prompt = env.observe("critic_0")
    assert prompt.count("State:") == 1
    assert f"[proposer_0]\nLike this: {listed(PLAN)}" in prompt
    env.step(listed(PLAN[:2]))
    assert "State: (ontable a) (ontable b) (ontable c)" in env.observe("proposer_0")
    env.step(listed(PLAN[2:]))
    assert earned(env, "proposer_0") == {"proposal": 0.0}  # the best so far was worth as much
    env.step(listed(PLAN[2:]))
    assert env.success
    assert earned(env, "critic_0") == pytest.approx({"team": 1, "optimal": 0.5, "step": -0.04, "progress": 0.5 * 4 / 6})
    assert earned(env, "proposer_0") == pytest.approx({"proposal": 0.0, "team": 1, "optimal": 0.5})


def test_what_a_proposal_is_worth():
    env = make("blocksworld-2agent")
    rises = []
    for proposal in ("[pick-up a]", "[unstack c a, pick-up b]", "[unstack c a]", listed(PLAN), "no list", listed(PLAN)):
        env.step(proposal)
        rises.append(earned(env, "proposer_0"))
        if not env.round_agents:
            break
        assert env.agent_selection == "critic_0"
        env.step("[unstack c a, stack c a]")
        if not env.round_agents:
            break
    assert rises == [{"proposal": 0.0}, {"proposal": 0.0}, {"proposal": 0.2}, {"proposal": 0.8}]
    assert env.truncations == {"proposer_0": True, "critic_0": True}


def test_what_comes_after_the_goal_costs_a_proposal_nothing():
    env = make("blocksworld-2agent", index=1)
    env.step("[pick-up a, stack a b, fly-not-checked]")
    assert earned(env, "proposer_0") == {"invalid": -0.1}
    env.step("[pick-up b]")
    env.step("[put-down b, pick-up a, stack a b, pick-up a]")
    assert earned(env, "proposer_0") == {"proposal": 1.0}


def test_the_critic_goes_on_where_the_proposer_says_nothing_of_use():
    env = make("blocksworld-2agent")
    env.step("I would rather not.")
    assert "(no usable list of operators)" in env.observe("critic_0")
    env.step(env.oracle("critic_0"))
    assert env.success


# ---- laws --------------------------------------------------------------------------------------------------------

operators = st.sampled_from(
    [
        *(f"{name} {x}" for name in ("pick-up", "put-down") for x in BLOCKS),
        *(f"{name} {x} {y}" for name in ("stack", "unstack") for x in BLOCKS for y in BLOCKS if x != y),
    ]
)
texts = st.one_of(
    st.lists(operators, min_size=1, max_size=8).map(listed),
    st.integers(1, 6).map(lambda n: listed(PLAN[:n])),
    st.integers(1, 6).map(lambda n: listed(PLAN[n - 1 :])),
    st.sampled_from(["", "[fly]"]),
)


@given(st.sampled_from(IDS), st.lists(texts, min_size=8, max_size=8))
def test_laws_of_an_episode(env_id, actions):
    env = make(env_id)
    actor = env.possible_agents[-1]
    contexts, total, proposals = [env._context(actor)], collections.Counter(), 0.0
    fork = None
    for action in actions:
        if not env.round_agents:
            break
        acting = env.agent_selection
        env.step(action)
        if acting == "proposer_0":
            proposals += earned(env, acting).get("proposal", 0.0)
        else:
            total.update(earned(env, acting))
        contexts.append(env._context(actor))
        fork = fork or env.fork()
    first, left = env._first_distance, len(best_plan(env._state, env._problem.goal)[0])
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(contexts))
    assert total["progress"] == pytest.approx(0.5 * (first - left) / first)
    assert env.success == (left == 0) == ("team" in total)
    assert ("optimal" in total) == (env.success and env.infos[actor]["moves"] == 6)
    assert 0 <= proposals <= 1 + 1e-9
    for action in actions[1:]:
        if fork.round_agents:
            fork.step(action)
    assert (fork.infos, fork.observe(actor), fork.success) == (env.infos, env.observe(actor), env.success)


# ---- oracles -----------------------------------------------------------------------------------------------------


def solves_shortest(env_id, count, **options):
    env = llm_envs.make(env_id, task_options=options, order_enforcing=False)
    lengths = set()
    for index in range(min(count, len(env.unwrapped.tasks))):
        env.reset(options={"task_index": index})
        for agent in env.possible_agents:
            plan = env.oracle(agent)
            env.step(plan)
        length = env.task.data["optimal_length"]
        assert env.success, env.task.id
        assert plan == env.task.answer
        assert env.infos[agent]["reward_parts"]["optimal"] == 0.5
        assert env.infos[agent]["moves"] == length == plan.count(",") + 1
        if env_id == "blocksworld-2agent":
            assert env.infos["proposer_0"]["reward_parts"]["proposal"] == 1.0
        lengths.add(length)
    return lengths


@pytest.mark.parametrize("goal", ["on", "full"])
@pytest.mark.parametrize("blocks", [3, 4, 5, 6, 8, 12, 20])
def test_the_oracle_finds_a_shortest_plan(blocks, goal):
    count = 60 if blocks == 20 else 250
    assert len(solves_shortest("blocksworld-1agent", count, blocks=blocks, goal=goal)) >= 4


def test_the_oracles_of_the_pair():
    solves_shortest("blocksworld-2agent", 200)


def test_the_oracle_goes_on_from_where_it_is():
    env = make()
    env.step("[pick-up b, stack b c]")  # away from the goal
    assert env.infos["planner_0"]["distance"] == 8
    env.step(env.oracle("planner_0"))
    assert env.success
    assert env.infos["planner_0"]["moves"] == 10


# ---- tasks -------------------------------------------------------------------------------------------------------


def test_states_are_drawn_uniformly():
    rng = random.Random(0)
    counts = collections.Counter(draw_state(rng, 4) for _ in range(73 * 200))
    assert len(counts) == 73
    # chi-square with 72 degrees of freedom: mean 72, standard deviation 12.
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 72 + 5 * 12


@pytest.mark.parametrize(("goal", "pairs"), [("on", 13 * 12), ("full", 13 * 13)])
def test_small_domains_are_listed(goal, pairs):
    tasks = [task for split in ("train", "test") for task in load_blocksworld(split, blocks=3, goal=goal)]
    assert len({task.question for task in tasks}) == len(tasks)
    # Every pair of a state and a goal but those where the goal holds at first.
    problems = [problem_of(task) for task in tasks]
    states = {problem.initial for problem in problems}
    goals = {problem.goal for problem in problems}
    assert len(states) == 13
    assert HAND not in {support for state in states for support in state}
    assert len(tasks) == sum(not goal.holds(state) for goal in goals for state in states)
    assert len(goals) * 13 == pairs


def test_lengths_are_kept():
    tasks = load_blocksworld(blocks=6, min_length=9, max_length=11)
    lengths = {tasks[index].data["optimal_length"] for index in range(40)}
    assert lengths == {10}  # with on goals and an empty hand, plans have an even number of operators
    for options in ({}, {"goal": "full"}):
        tasks = load_blocksworld("test", blocks=5, **options)
        assert all(tasks[index].data["optimal_length"] >= 2 for index in range(100))


def test_splits_do_not_overlap():
    for blocks in (3, 4, 5):
        sides = [load_blocksworld(split, blocks=blocks) for split in ("train", "test")]
        train, test = ({tasks[i].question for i in range(min(400, len(tasks)))} for tasks in sides)
        assert len(train) > 100
        assert len(test) > 10
        assert not train & test


FINGERPRINT = (
    "import hashlib, json; from llm_envs.planning.blocksworld_tasks import load_blocksworld as load;"
    "tasks = [load(split, blocks=n)[i] for split in ('train', 'test') for n in (3, 5, 8) for i in range(10)];"
    "print(hashlib.sha256(json.dumps([t.hash for t in tasks]).encode()).hexdigest())"
)
PINNED = "964d522b180d48466d1a4490f3113f27859ad4ab6d03c6d3d3030a9f926bfc0d"


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
    assert seen == {PINNED}, "generated problems changed: raise the version of the set"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": 5}, "no option 'block'. Did you mean: 'blocks'"),
        ({"blocks": 2}, "blocks must be a whole number from 3 to 20, got 2"),
        ({"blocks": 21}, "blocks must be a whole number from 3 to 20, got 21"),
        ({"blocks": True}, "blocks must be"),
        ({"goal": "clear"}, "goal must be one of on, full, got 'clear'"),
        ({"min_length": 0}, "min_length must be a whole number of at least 1, got 0"),
        ({"min_length": 6, "max_length": 4}, "max_length must be a whole number of at least 6, got 4"),
        ({"blocks": 5, "min_length": 40}, "none had a shortest plan of min_length=40"),
        ({"blocks": 4, "min_length": 40}, "no problem with blocks=4 has a shortest plan of min_length=40"),
        ({"size": 0}, "size must be a whole number"),
    ],
)
def test_bad_options_are_refused_before_the_first_episode(options, message):
    with pytest.raises(TaskError, match=message):
        llm_envs.make("blocksworld-1agent", task_options=options)


def test_rows_of_facts(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"initial": "(on a b) (ontable b) (clear a) (handempty)", "goal": ["on b a"], "level": 1}\n'
        '{"initial": "ontable x, ontable y, clear x, clear y, handempty", "goal": "on x y", "blocks": "y x"}\n',
        encoding="utf-8",
    )
    tasks = load_blocksworld_tasks(str(path))
    assert tasks[0].answer == "[unstack a b, put-down a, pick-up b, stack b a]"
    assert (tasks[0].data["optimal_length"], tasks[0].data["level"]) == (4, 1)
    assert (tasks[1].data["blocks"], tasks[1].answer) == (("y", "x"), "[pick-up x, stack x y]")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"goal": "on a b"}', "no initial in any of the columns.*Say which to use with columns"),
        ('{"initial": "ontable a, clear a, handempty", "goal": "on a b"}', "names 'b', which is not one of the b"),
        ('{"initial": "ontable a, clear a, handempty", "goal": "on a b"}', r"\. Mend it, or leave such rows out"),
        ('{"initial": "ontable a, clear a, handempty", "goal": "on a b", "blocks": 2}', "blocks are text or a list"),
        ('{"initial": 3, "goal": "on a b"}', "facts are text or a list of texts, got 3"),
    ],
)  # fmt: skip
def test_rows_that_are_no_problem_are_refused(tmp_path, row, message):
    (tmp_path / "mine.jsonl").write_text(row, encoding="utf-8")
    with pytest.raises(TaskError, match=message):
        load_blocksworld_tasks(str(tmp_path / "mine.jsonl"))


def test_a_task_without_a_problem_is_refused():
    env = llm_envs.make("blocksworld-1agent", tasks=[Task("t/0", "Stack them.", "", {"blocks": ("a", "b")})])
    with pytest.raises(TaskError, match="the task t/0 has no blocks-world problem"):
        env.reset()
