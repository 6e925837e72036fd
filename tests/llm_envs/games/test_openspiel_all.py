"""Every game of OpenSpiel: random legal texts under PettingZoo's own test, and the table in the documentation."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import random
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from pettingzoo.test import api_test

pyspiel = pytest.importorskip("pyspiel")

import llm_envs  # noqa: E402
from llm_envs.games import openspiel_catalog as catalog  # noqa: E402
from llm_envs.spaces import FreeText  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[3]


def load_script():
    path = REPOSITORY / "scripts" / "generate_openspiel_docs.py"
    spec = importlib.util.spec_from_file_location("generate_openspiel_docs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()
# As at the start: whatever imports `open_spiel.python.games` later registers more games in this process.
ALL, PLAYABLE = catalog.all_names(), catalog.names()
MOVES = 5_000


class LegalTexts(FreeText):
    """An action space that draws a legal text of its agent."""

    def __init__(self, env, agent, seed):
        super().__init__()
        self.env, self.agent, self.rng = env, agent, random.Random(seed)

    def sample(self, mask=None, probability=None):
        legal = self.env.legal_actions(self.agent)
        return self.rng.choice(legal) if legal else "nothing"


@pytest.mark.parametrize("name", PLAYABLE)
def test_a_random_game_ends_under_pettingzoos_test(name, tmp_path, capsys):
    parameters = next(given for entry, given in SCRIPT.games(tmp_path) if entry.name == name)
    env = llm_envs.make(f"openspiel/{name}", **parameters)
    game = env.unwrapped
    spaces = {agent: LegalTexts(game, agent, seat) for seat, agent in enumerate(game.possible_agents)}
    game.action_space = spaces.__getitem__
    endings = []
    finish = game._final

    def final(info):
        endings.append((info, game.match.over, game.match.state.returns()))
        return finish(info)

    game._final = final
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        api_test(env, num_cycles=MOVES)
    assert endings, f"not over after {MOVES} moves of each player"
    for info, over, returns in endings:
        assert (info, over) == ({}, True), "a legal text was refused"
        if game.rules.zero_sum:
            assert sum(returns) == pytest.approx(0, abs=1e-6)


def test_at_least_a_hundred_games_are_text_environments():
    assert len(PLAYABLE) >= 100
    assert set(ALL) - set(PLAYABLE) == {
        "crossword",
        "mfg_crowd_modelling",
        "mfg_crowd_modelling_2d",
        "mfg_dynamic_routing",
        "mfg_garnet",
    }


def test_the_table_is_up_to_date():
    text = SCRIPT.PAGE.read_text(encoding="utf-8")
    version = importlib.metadata.version("open-spiel")
    if f"OpenSpiel {version} has" not in text:
        pytest.skip(f"the table is of another version than {version}: games and their moves differ between versions")
    # In a process of its own, where nothing has registered further games.
    script = "import runpy, sys; print(runpy.run_path(sys.argv[1])['tables'](), end='')"
    run = subprocess.run(
        [sys.executable, "-c", script, SCRIPT.__file__], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert SCRIPT.page(text, run.stdout) == text, "run scripts/generate_openspiel_docs.py"
    assert "not over" not in run.stdout
    assert "refused" not in run.stdout
