"""Sudoku in few words: its rules are those of sudoku, its texts are short, and nothing pays twice."""

from __future__ import annotations

import random
from typing import Any

import pytest

import llm_envs
from benchmarks.studies.short_sudoku import PAIR, SOLO, vocabulary
from benchmarks.studies.sudoku_filler import FillerPolicy, fills
from llm_envs.games.sudoku import Fill, IllegalFill, apply_fill, parse_grid
from llm_envs.games.sudoku_tasks import sudoku_draft
from llm_envs.tasks import Task
from llm_envs.testing import check_env
from trainers.env_texts import env_texts
from trainers.rollout.episodes import collect, make_jobs
from trainers.team import Team
from trainers.tokenizing import build_tokenizer, encode_known

# 1 3 2 4      the solution; blank are r1c2 (3), r2c1 (4) and r4c4 (2)
# 4 2 3 1
# 2 4 1 3
# 3 1 4 2
CLUES = parse_grid("1.24 .231 2413 314.")
SPARSE = parse_grid(".4.2 .... 1.4. ....")
OPEN = parse_grid("1.2. .41. .1.. 4..1")
PUZZLE = Task("s/0", *(draft := sudoku_draft(CLUES))[:2], data=dict(draft[2]))
GIVEN = "clues r1c1v1 r1c3v2 r1c4v4 r2c2v2 r2c3v3 r2c4v1 r3c1v2 r3c2v4 r3c3v1 r3c4v3 r4c1v3 r4c2v1 r4c3v4"


def make(env_id: str, **kwargs: Any) -> Any:
    env = llm_envs.make(env_id, tasks=[PUZZLE], **kwargs)
    env.reset(seed=0)
    return env


def parts(env: Any, agent: str) -> dict[str, float]:
    return {name: pytest.approx(value) for name, value in env.unwrapped.infos[agent]["reward_parts"].items()}


@pytest.mark.parametrize("env_id", [SOLO, PAIR])
def test_the_contract(env_id: str) -> None:
    check_env(lambda: llm_envs.make(env_id, task_options={"min_clues": 6}))


def test_a_prompt_is_the_grid_in_words_and_what_happened_since() -> None:
    env = make(SOLO)
    assert env.observe("planner_0") == f"{GIVEN}\nblank r1c2 r2c1 r4c4\n\nplanner_0 1"
    env.step("[r1c2v3, r2c1v2, r4c4v2]")  # row 2 holds a 2: what follows is not played
    history = (
        f"{GIVEN}\nblank r1c2 r2c1 r4c4\nplanner_0 [r1c2v3, r2c1v2, r4c4v2]\nstop r2c1v2\nnow r1c2v3\nblank r2c1 r4c4"
    )
    assert env.observe("planner_0") == f"{history}\n\nplanner_0 2"
    assert parts(env, "planner_0") == {"progress": 1 / 3, "step": -0.01, "illegal": -0.1}
    env.step("r2c1v4")
    assert env.observe("planner_0") == (
        f"{history}\nplanner_0 nothing\n\nplanner_0 3\n\nYour last answer could not be used: no list of fills"
    )
    env.step("[r2c1v4, r4c4v2]")
    assert parts(env, "planner_0") == {"team": 1.0, "optimal": 0.0, "progress": 2 / 3, "step": -0.02}
    assert env.unwrapped.success


def test_clues_stay_and_fills_are_undone() -> None:
    env = make(SOLO)
    env.step("[r1c1v3]")
    assert "stop r1c1v3\nblank r1c2 r2c1 r4c4\n" in env.observe("planner_0")
    env.step("[r1c2v3, r1c2v0]")
    assert parts(env, "planner_0") == {"progress": 0.0, "step": -0.02}
    assert not env.unwrapped.success


@pytest.mark.parametrize(
    ("proposal", "verdict"),
    [
        ("[r1c2v3, r2c1v4, r4c4v2]", "check solved"),
        ("[r1c2v3, r2c1v4]", "check ok"),
        ("[r1c2v2, r2c1v4]", "check stop r1c2v2 r1c3v2"),  # row 1 holds a 2
        ("[r3c4v2]", "check stop r3c4v2 r3c4v3"),  # a clue
        ("[r1c2v0]", "check stop r1c2v0"),  # nothing to clear
        ("[r1c2v9]", "check stop r1c2v9"),  # no such value
        ("[r9c9v1]", "check stop r9c9v1"),
    ],
)
def test_the_checker_knows_the_rules(proposal: str, verdict: str) -> None:
    env = make(PAIR)
    env.step(proposal)
    for agent in ("proposer_0", "planner_0"):
        assert f"\nproposer_0 {proposal}\n{verdict}\n\n{agent} 1" in env.observe(agent)
    blind = make(PAIR, tool=False)
    blind.step(proposal)
    assert blind.observe("planner_0").endswith(f"\nproposer_0 {proposal}\n\nplanner_0 1")


def test_the_checker_names_cells_without_a_value() -> None:
    draft = sudoku_draft(OPEN)
    env = llm_envs.make(PAIR, tasks=[Task("s/1", draft[0], draft[1], data=dict(draft[2]))])
    env.reset(seed=0)
    # 1 3 2 .    row 1 leaves its last cell the 4, which the fourth column holds
    # . 4 1 .
    # . 1 . 4
    # 4 . . 1
    env.step("[r1c2v3, r3c4v4]")
    assert env.observe("planner_0").endswith("\ncheck ok dead r1c4\n\nplanner_0 1")


def _illegal(grid: bytes, cell: int, value: int) -> bool:
    try:
        apply_fill(grid, SPARSE, Fill(cell, value))
    except IllegalFill:
        return True
    return False


def test_the_proposer_fills_nothing_and_is_paid_for_its_best_proposal_once() -> None:
    env = make(PAIR)
    env.step("[r1c2v3, r2c1v2]")
    assert parts(env, "proposer_0") == {"proposal": 1 / 3, "illegal": -0.1}
    env.step("[r1c2v3]")
    assert parts(env, "planner_0") == {"progress": 1 / 3, "step": -0.01}
    env.step("[r2c1v4]")  # with r1c2 as it now stands: two thirds, one of which was paid
    assert parts(env, "proposer_0") == {"proposal": 1 / 3}
    env.step("[r2c1v4]")
    env.step("[r4c4v2]")
    assert parts(env, "proposer_0") == {"proposal": 1 / 3}
    assert env.unwrapped.proposal_solves
    assert not env.unwrapped.success
    env.step("[r4c4v2]")
    assert env.unwrapped.success
    assert parts(env, "planner_0") == {"team": 1.0, "optimal": 0.0, "progress": 1 / 3, "step": -0.01}


def test_the_tokenizer_of_a_few_puzzles_writes_all_of_them() -> None:
    texts = [text for env in (SOLO, PAIR) for text in env_texts(env, tasks=40)]
    tokenizer = build_tokenizer([*texts, *vocabulary(4)])
    assert len(tokenizer) < 150
    for text in env_texts(PAIR, tasks=60, seed=9, split="test"):
        encode_known(tokenizer, text)
    env = llm_envs.make(SOLO)
    env.reset(seed=0)
    assert len(tokenizer(env.observe("planner_0"))["input_ids"]) == 23  # sixteen cells and seven signs and words


def test_a_careful_player_makes_legal_fills_until_none_is_left() -> None:
    ends = set()
    for seed in range(30):
        grid = SPARSE
        for fill in fills(SPARSE, SPARSE, random.Random(seed), 1.0):
            grid = apply_fill(grid, SPARSE, fill)
        blank = [cell for cell, value in enumerate(grid) if not value]
        assert all(_illegal(grid, cell, value) for cell in blank for value in range(1, 5))
        ends.add(grid)
        if blank:  # stuck: it begins again
            again = fills(grid, SPARSE, random.Random(seed), 1.0)
            cleared = sum(value != clue for value, clue in zip(grid, SPARSE, strict=True))
            assert [fill.value for fill in again[: cleared + 1]].count(0) == cleared
    assert parse_grid(sudoku_draft(SPARSE).answer) in ends
    assert len(ends) > 2


def test_a_careless_player_ends_with_its_first_illegal_fill() -> None:
    for seed in range(30):
        *before, last = fills(SPARSE, SPARSE, random.Random(seed), 0.0)
        grid = SPARSE
        for fill in before:
            grid = apply_fill(grid, SPARSE, fill)
        if _illegal(grid, *last):
            break
    else:
        pytest.fail("it never made an illegal fill")


async def test_the_player_fails_and_succeeds_and_its_planner_repeats_what_was_seen_to_work() -> None:
    env: Any = llm_envs.make(PAIR, order_enforcing=False).unwrapped
    episodes = await collect(env.fork, Team.single(FillerPolicy(0.9)), make_jobs(range(60), 1, 0), concurrency=8)
    assert 10 < sum(episode.success for episode in episodes) < 58
    repeated = 0
    for episode in episodes:
        for proposer, planner in zip(episode.turns[::2], episode.turns[1::2], strict=True):
            if "check solved" in planner.observation.rpartition("proposer_0")[2]:
                assert planner.action == proposer.action
                repeated += 1
    assert repeated > 5
