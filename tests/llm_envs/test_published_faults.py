"""What published environments of this kind got wrong, one test a fault, on every environment that could have it.

Not here: an all-correct group in which one penalty of -0.01 became an advantage of -2.47 is a fault of the algorithm,
and tests/trainers/algorithms/test_presets_by_hand.py has it.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import llm_envs
from llm_envs.tasks import Task
from llm_envs.tools.retrieval import Passage, Retriever, RetrieverError
from llm_envs.tools.retrieval.bm25 import BM25Retriever

IDS = sorted(llm_envs.registry)
ZERO_SUM = [i for i in IDS if llm_envs.make(i).metadata.get("zero_sum")]
TEAMS = [i for i in IDS if len(llm_envs.make(i).possible_agents) > 1]
PLANNING = [i for i in IDS if i.startswith(("plan-path", "sokoban", "blocksworld", "sudoku"))]
SUDOKU = [i for i in IDS if i.startswith("sudoku")]
SEARCH = [i for i in IDS if i.startswith("search")]
CODE = [i for i in IDS if i.startswith("code")]
NOTHING = "I do not know."


def make(env_id, **options):
    return llm_envs.make(env_id, order_enforcing=False, **options)


def play(env, says, index=0):
    """Play a task; ``says`` gives each agent's text, or one for all. Returns what each agent earned."""
    env.reset(seed=1, options={"task_index": index})
    earned = dict.fromkeys(env.possible_agents, 0.0)
    while env.round_agents:
        agent = env.agent_selection
        env.step(says(env, agent) if callable(says) else says)
        for name, reward in env.rewards.items():
            earned[name] += reward
    return earned


def oracle(env, agent):
    return env.oracle(agent)


# ---- endings --------------------------------------------------------------------------------------------------------

# A task of each planning domain with a move that is never legal in it.
ILLEGAL = {
    "plan-path": ({"map": ("#A..", "#..G"), "optimal_length": 3}, "U"),
    "sokoban": ({"level": ("######", "#@ $.#", "######"), "optimal_length": 2}, "U"),
    "blocksworld": (
        {
            "blocks": ("a", "b"),
            "initial": ("ontable a", "ontable b", "clear a", "clear b", "handempty"),
            "goal": ("on a b",),
            "optimal_length": 2,
        },
        "put-down a",
    ),
    "sudoku": ({"puzzle": "1234341221434320", "optimal_length": 1}, "r1c1=1"),
}


@pytest.mark.parametrize("env_id", PLANNING)
def test_ten_thousand_illegal_moves_earn_nothing(env_id):
    """They scored +399 and success."""
    data, move = ILLEGAL[env_id.rpartition("-")[0].rpartition("-")[0]]
    env = make(env_id, tasks=[Task("t/0", "?", "", data)], max_moves=10_000)
    earned = play(env, f"[{', '.join([move] * 10_000)}]")
    assert not env.success
    planner = env.possible_agents[-1]
    assert earned[planner] == pytest.approx(env.max_rounds * env.coefficients["illegal"])
    assert all(value <= 0 for value in earned.values())


@pytest.mark.parametrize("env_id", [i for i in PLANNING if i.startswith(("plan-path", "sokoban"))])
def test_two_hundred_times_up_solves_nothing(env_id):
    """It "solved" every level: limit reached = done = success."""
    env = make(env_id, max_moves=200)
    for index in range(20):
        play(env, f"[{', '.join('U' * 200)}]", index)
        solved = env._solved(env._state)
        assert env.success == solved
        assert set(env.truncations.values()) == {not solved}


@pytest.mark.parametrize("env_id", [i for i in IDS if i not in ZERO_SUM])
def test_the_limit_is_neither_the_end_nor_success(env_id):
    env = make(env_id)
    play(env, NOTHING)
    assert not env.success
    assert {info["success"] for info in env.infos.values()} == {False}
    if env_id not in ("math-1agent-v0", "math-debate-v0"):  # their last round is the end by the rules
        assert set(env.truncations.values()) == {True}
        assert set(env.terminations.values()) == {False}


# ---- sudoku ---------------------------------------------------------------------------------------------------------

GRID = "1234341221434321"


@pytest.mark.parametrize("env_id", SUDOKU)
def test_one_grid_does_not_solve_every_puzzle(env_id):
    """The check of a solution ignored the clues: one grid that stood in the prompt solved all 400 puzzles."""
    env = make(env_id)
    fills = f"[{', '.join(f'r{i // 4 + 1}c{i % 4 + 1}={value}' for i, value in enumerate(GRID))}]"
    for index in range(400 if env_id.startswith("sudoku-1") else 40):
        play(env, fills, index)
        assert env.success == (env.task.answer == GRID), env.task


def solutions(puzzle):
    """All ways to complete a 4×4 puzzle, by trying."""
    cell = puzzle.find(".")
    if cell < 0:
        return [puzzle]
    row, column = divmod(cell, 4)
    peers = {
        puzzle[4 * r + c]
        for r in range(4)
        for c in range(4)
        if r == row or c == column or (r // 2, c // 2) == (row // 2, column // 2)
    }
    return [s for v in "1234" if v not in peers for s in solutions(puzzle[:cell] + v + puzzle[cell + 1 :])]


@pytest.mark.parametrize("env_id", SUDOKU)
def test_every_puzzle_has_one_solution_and_is_in_one_split(env_id):
    """Most could not be solved, and train was test."""
    splits = [make(env_id, split=split).tasks for split in ("train", "test")]
    puzzles = [{tasks[i].data["puzzle"].replace("0", ".") for i in range(200)} for tasks in splits]
    assert not puzzles[0] & puzzles[1]
    for tasks in splits:
        for index in range(40):
            assert solutions(tasks[index].data["puzzle"].replace("0", ".")) == [tasks[index].answer]


# ---- what agents see ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", PLANNING)
def test_the_prompt_shows_the_state_as_it_is_now(env_id):
    """It went on showing the first cell, the first board."""
    env = make(env_id)
    index = next(i for i in range(20) if env.tasks[i].data["optimal_length"] > 2)
    env.reset(seed=0, options={"task_index": index})
    first, planner = env._state_text(env._state), env.possible_agents[-1]
    for agent in env.possible_agents:
        move = env.oracle(agent).strip("[]").split(", ")[0]
        env.step(f"[{move}]" if agent == planner else env.oracle(agent))
    now = env._state_text(env._state)
    assert now != first
    for agent in env.possible_agents:
        prompt = env.observe(agent)
        assert prompt.rfind(now) > prompt.find(first) >= 0


@pytest.mark.parametrize("env_id", IDS)
def test_no_observation_is_frozen(env_id):
    """Nothing changed after the first turn."""
    env = make(env_id)
    env.reset(seed=0, options={"task_index": 0})
    seen = {}
    while env.round_agents:
        agent = env.agent_selection
        prompt = str(env.observe(agent))
        assert prompt != seen.get(agent), f"{agent} reads the same again"
        seen[agent] = prompt
        env.step(NOTHING)


# What the first agent of each team says, with a word in it that no task has.
FIRST_WORDS = {
    **dict.fromkeys(("math-2agent", "math-4agent", "math-tool-2agent", "math-debate"), "zebra \\boxed{-99}"),
    "search-2agent": "zebra <ask>who?</ask>",
    "search-3agent": "zebra <verify>no</verify>",
    "code-2agent": "```python\nzebra = 1\n```",
    "code-3agent": "zebra",
    **dict.fromkeys(("plan-path-2agent", "sokoban-2agent", "sudoku-2agent"), "```python\nzebra = 1\n```"),
    "blocksworld-2agent": "zebra [put-down a]",
    # Of a game only the move is public.
    **dict.fromkeys(("tictactoe", "connect-four"), "[0]"),
    "kuhn-poker": "[check]",
    "negotiation": "[offer: 1 wood -> 1 stone]",
}


@pytest.mark.parametrize("env_id", TEAMS)
def test_the_second_agent_sees_what_the_first_did(env_id):
    """It never saw the first one's turn."""
    env = make(env_id)
    env.reset(seed=0, options={"task_index": 0})
    words = FIRST_WORDS[env.spec.name]
    mark = "zebra" if "zebra" in words else words
    first = env.agent_selection
    for agent in env.round_agents:  # one turn, or a whole round
        env.step(words if agent == first else NOTHING)
    assert "invalid_action" not in env.infos[first]
    readers = [agent for agent in env.possible_agents if agent != first]
    assert all(mark in env.observe(agent) for agent in readers)


# ---- answers --------------------------------------------------------------------------------------------------------

UNCLEAR = (
    *("", "Looks fine to me.", "approve", "yes", "<verify>approve", "<verify></verify>", "<verify>yes or no</verify>"),
    *("<verify>approve</verify> <verify>reject</verify>", "<verify>yes</verify> <verify>no</verify>"),
    *("</verify>yes<verify>", "I approve. <verify>reject", "<Verify>approve</Verify>", "<verify>approved</verify>"),
)


def verdict_seats(env):
    env.reset(seed=0, options={"task_index": 0})
    return [agent for agent in env.possible_agents if "<verify>" in env.observe(agent)]


@pytest.mark.parametrize("env_id", [i for i in IDS if verdict_seats(make(i))])
@pytest.mark.parametrize("text", UNCLEAR)
def test_a_missing_verdict_is_no_approval(env_id, text):
    """Silence was approval."""
    env = make(env_id)
    (seat,) = verdict_seats(env)
    while env.agent_selection != seat:
        env.step("zebra \\boxed{-99}\n```python\npass\n```")
    before = len(env.transcript)
    env.step(text)
    assert env.round_agents, "the episode is over"
    assert "invalid_action" in env.infos[seat]
    following = env.agent_selection
    env.reset(seed=0, options={"task_index": 0})
    while len(env.transcript) < before:
        env.step("zebra \\boxed{-99}\n```python\npass\n```")
    env.step("<verify>no</verify>" if env_id.startswith("search") else "<verify>reject</verify>")
    assert env.agent_selection == following, "what is unclear goes another way than a rejection"


def test_all_verdicts_are_found():
    assert {i.rpartition("-")[0] for i in IDS if verdict_seats(make(i))} == {
        *("math-2agent", "math-4agent", "code-3agent", "search-3agent")
    }


def quiz(gold):
    """Options for a search environment with one question."""
    passages = [Passage("p1", "War", f"The war ended in {gold}."), Passage("p2", "River", "The blue river is long.")]
    return {
        "tasks": [Task("t/0", "What is it?", gold, {"answers": [gold]})],
        "retriever": BM25Retriever.from_passages(passages),
    }


def answered(env_id, gold, text):
    """Whether ``text`` in the place of the answer solves the question, and what was wrong with it."""
    env = make(env_id, **quiz(gold))
    reasons = []

    def says(env, agent):
        reasons.extend(info["invalid_action"] for info in env.infos.values() if "invalid_action" in info)
        return text if "<answer>" in env.oracle(agent) or env._last_round else env.oracle(agent)

    play(env, says)
    reasons.extend(info["invalid_action"] for info in env.infos.values() if "invalid_action" in info)
    return env.success, reasons


@pytest.mark.parametrize("env_id", SEARCH)
@pytest.mark.parametrize(
    "text", ["</answer> x <answer>Paris</answer>", "<answer>Paris</answer> <answer>Rome</answer>", "<answer> </answer>"]
)
def test_tags_out_of_order_are_no_answer(env_id, text):
    """They were read as an empty answer, which was valid."""
    success, reasons = answered(env_id, "Paris", text)
    assert not success
    assert reasons
    assert answered(env_id, "Paris", "x <answer>Paris</answer>") == (True, [])


@pytest.mark.parametrize("env_id", SEARCH)
@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        *(("1945", answer) for answer in ("1", "19", "945", "in 1945", "1945 or 1946", "1945 1945")),
        *(("the blue river", answer) for answer in ("blue", "river", "blue river bank", "blue river or red river")),
    ],
)
def test_a_part_of_the_answer_is_not_the_answer(env_id, gold, answer):
    """Graded by substring or half of the words: "1" matched "1945"."""
    assert not answered(env_id, gold, f"<answer>{answer}</answer>")[0]
    assert answered(env_id, gold, f"<answer>{gold}</answer>")[0]


@pytest.mark.parametrize("env_id", IDS)
def test_the_prompts_own_example_is_no_answer(env_id):
    """The first tag was taken from the prompt's example: repeating the prompt was an answer."""
    env = make(env_id)
    for index in range(3):
        play(env, lambda env, agent: str(env.observe(agent)), index)
        assert not env.success


@pytest.mark.parametrize("env_id", SEARCH)
def test_a_server_that_is_down_is_an_error_of_the_run(env_id):
    """Made-up passages took the place of real ones."""

    class Down(Retriever):
        kind = "down"

        def _search(self, queries, k):
            raise RetrieverError("the server is down")

    env = make(env_id, **{**quiz("1945"), "retriever": Down()})
    env.reset(seed=0)
    while "<search>" not in (text := env.oracle(env.agent_selection)):
        env.step(text)
    with pytest.raises(RetrieverError, match="the server is down"):
        env.step(text)
    assert not any("[passages" in env.observe(agent) for agent in env.possible_agents)


# ---- tests of programs ----------------------------------------------------------------------------------------------


def test_a_good_tester_is_paid():
    """Its reward was always 0, since the reference solution was never loaded."""
    env = make("code-2agent")
    assert play(env, oracle) == pytest.approx({"coder_0": 2.0, "tester_0": 2.0})
    # The tests alone are paid, without a program that passes the hidden ones.
    earned = play(env, lambda env, agent: env.oracle(agent) if agent == "tester_0" else "```python\npass\n```")
    assert earned["tester_0"] == pytest.approx(1.0)


@pytest.mark.parametrize("env_id", CODE)
def test_hidden_tests_are_never_shown(env_id):
    """The baseline of one agent was shown them."""
    env = make(env_id)
    for index in range(4):
        seen = []

        def says(env, agent, seen=seen):
            seen.extend(str(env.observe(name)) for name in env.possible_agents)
            return "wrong\n```python\nprint(1)\n```" if agent != "tester_0" else NOTHING

        play(env, says, index)
        seen.extend(str(env.observe(name)) for name in env.possible_agents)
        public = "".join(case["input"] for case in env.task.data["public"])
        hidden = [case["input"].strip() for case in env.task.data["hidden"] if case["input"].strip() not in public]
        telling = [given for given in hidden if len(given) > 8]
        assert telling
        assert not [given for given in telling for text in seen if given.strip("(),") in text]


# ---- state ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", IDS)
def test_history_does_not_leak_into_the_next_episode(env_id):
    used, fresh = make(env_id), make(env_id)
    play(used, oracle, 0)
    for env in (used, fresh):
        env.reset(seed=5, options={"task_index": 1})
    for agent in used.possible_agents:
        assert used.observe(agent) == fresh.observe(agent)


@pytest.mark.parametrize("env_id", IDS)
def test_observing_consumes_nothing(env_id):
    env, twin = make(env_id), make(env_id)
    for one in (env, twin):
        one.reset(seed=2, options={"task_index": 0})
    for _ in range(4):
        if not env.round_agents:
            break
        looks = [[str(env.observe(agent)) for agent in env.possible_agents] for _ in range(3)]
        assert looks[0] == looks[1] == looks[2]
        env.step(NOTHING)
        twin.step(NOTHING)
    assert [env.observe(agent) for agent in env.possible_agents] == [
        twin.observe(agent) for agent in env.possible_agents
    ]


@pytest.mark.parametrize("env_id", IDS)
def test_global_generators_are_left_alone(env_id):
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    play(make(env_id), oracle)
    after = random.getstate(), np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0]
    assert all(np.array_equal(one, other) for one, other in zip(before[1], after[1], strict=True))
