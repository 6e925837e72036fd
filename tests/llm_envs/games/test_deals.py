"""Deals: the tasks of games depend on (name, seed, index) only, and bad ones are refused."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
from gymnasium import error

import llm_envs
from llm_envs.games.deals import DealSet, drawn, load_deals, no_chance
from llm_envs.games.kuhn_poker_env import QUESTION, _draw
from llm_envs.tasks import Task, TaskError


def cards(**options):
    return DealSet("kuhn-poker", QUESTION, _draw, **options)


def test_a_deal_depends_on_name_seed_and_index_only():
    backwards = cards()
    last_first = [backwards[i] for i in reversed(range(50))]
    assert last_first[::-1] == list(cards(size=50))  # order of access, size
    assert [t.data["cards"] for t in cards(seed=1)[:50]] != [t.data["cards"] for t in cards()[:50]]
    assert pickle.loads(pickle.dumps(cards()))[7] == cards()[7]
    assert copy.deepcopy(backwards) is backwards


def test_deals_are_the_same_in_another_process():
    code = "import llm_envs; print([t.data['cards'] for t in llm_envs.make('kuhn-poker').unwrapped.tasks[:40]])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str([t.data["cards"] for t in cards()[:40]])


def test_deals_have_names_and_no_split():
    tasks = llm_envs.make("tictactoe").unwrapped.tasks
    assert (len(tasks), tasks.split, tasks[17].id) == (1000, "all", "tictactoe/all/17")
    assert len({task.hash for task in tasks}) == 1000  # results of different deals are told apart
    with pytest.raises(error.Error, match="split"):
        llm_envs.make("tictactoe", split="train")


def test_fingerprints_tell_sets_apart():
    sets = [cards(), cards(size=10), cards(seed=1), cards(version=2), DealSet("other", "A hand.", _draw)]
    openings = [llm_envs.make("tictactoe", opening_moves=n).unwrapped.tasks for n in (0, 2)]
    prints = {each.fingerprint for each in [*sets, *openings]}
    assert len(prints) == 7
    assert cards().fingerprint == cards().fingerprint


def test_every_card_deal_comes_about_equally_often():
    found = [task.data["cards"] for task in cards()]
    counts = [found.count(deal) for deal in set(found)]
    assert len(counts) == 6
    assert all(120 < count < 215 for count in counts)  # 167 expected, standard deviation 12


@pytest.mark.parametrize("options", [{"size": 0}, {"size": 1.5}, {"size": True}, {"seed": -1}, {"seed": "0"}])
def test_bad_numbers_are_refused(options):
    (name, value), *_ = options.items()
    with pytest.raises(TaskError, match=f"kuhn-poker: {name} must be a whole number.*got {value!r}"):
        cards(**options)


def test_options_and_own_tasks():
    env = llm_envs.make("kuhn-poker", task_options={"size": 3, "seed": 5}).unwrapped
    assert list(env.tasks) == list(cards(size=3, seed=5))
    with pytest.raises(TaskError, match=r"has no option 'sise'. Did you mean: 'size'"):
        llm_envs.make("kuhn-poker", task_options={"sise": 3})
    mine = Task("mine/0", "A hand.", "", {"cards": [2, 0]})
    env = llm_envs.make("kuhn-poker", tasks=[mine]).unwrapped
    env.reset(seed=0)
    assert "Your card is K." in env.observe("player_0")
    assert load_deals("deals", "nim", "Nim.").fingerprint == DealSet("nim", "Nim.", no_chance).fingerprint


@pytest.mark.parametrize("data", [{}, {"cards": [0, 0]}, {"cards": [0, 3]}, {"cards": 1}])
def test_a_deal_that_cannot_be_played_is_refused(data):
    env = llm_envs.make("kuhn-poker", tasks=[Task("mine/0", "A hand.", "", data)])
    with pytest.raises(TaskError, match=r"mine/0.*cards"):
        env.reset(seed=0)


def test_a_missing_key_is_named():
    with pytest.raises(TaskError, match="no 'cards' in its data; it has: deal"):
        drawn(Task("t/0", "", "", {"deal": 0}), "cards")
