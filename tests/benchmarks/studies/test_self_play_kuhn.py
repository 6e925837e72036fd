"""The study of self-play in Kuhn poker: what it measures is exact, it runs, and its page is that of its data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.studies import self_play_kuhn as study
from benchmarks.studies.kuhn_strategies import UNIFORM, average, exploitability, value_against_equilibrium
from benchmarks.studies.self_play_kuhn_report import gather, page, table
from llm_envs.games import kuhn_poker

TINY = study.StudySettings(updates=2, games=16, warmup_updates=1, hidden=32, layers=1, hands=24, epochs=1, eval_hands=8)
pytest.importorskip("pyspiel")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def drawn(seed: int) -> dict[tuple[int, str], float]:
    rng = np.random.default_rng(seed)
    return {point: float(rng.random()) for point in UNIFORM}


@pytest.mark.parametrize("alpha", [Fraction(0), Fraction(1, 5), Fraction(1, 3)])
def test_an_equilibrium_cannot_be_exploited(alpha: Fraction) -> None:
    strategy = {point: float(chance) for point, chance in kuhn_poker.equilibrium(alpha).items()}
    assert exploitability(strategy) == pytest.approx(0, abs=1e-12)
    assert value_against_equilibrium(strategy) == pytest.approx(0, abs=1e-12)


def test_moves_at_random_have_their_known_value() -> None:
    assert exploitability(UNIFORM) == pytest.approx(11 / 24)
    assert value_against_equilibrium(UNIFORM) == pytest.approx(-1 / 6)


@pytest.mark.parametrize("seed", range(5))
def test_openspiel_agrees_with_our_rules(seed: int) -> None:
    strategy = drawn(seed)
    assert exploitability(strategy) == pytest.approx(float(kuhn_poker.exploitability(strategy, strategy)))
    assert value_against_equilibrium(strategy) <= 1e-12


def test_an_average_plays_as_its_members_drawn_for_each_hand() -> None:
    members = [drawn(seed) for seed in range(3)]
    mean = average(members)
    for opponent in (drawn(7), drawn(8)):
        as_first = np.mean([float(kuhn_poker.expected_chips(member, opponent)) for member in members])
        as_second = np.mean([float(kuhn_poker.expected_chips(opponent, member)) for member in members])
        assert float(kuhn_poker.expected_chips(mean, opponent)) == pytest.approx(as_first)
        assert float(kuhn_poker.expected_chips(opponent, mean)) == pytest.approx(as_second)
    with pytest.raises(ValueError, match="no strategies"):
        average([])
    never = {**UNIFORM, (0, ""): 1.0}  # both bet at once: the decision after a check is not reached
    assert average([never, never])[0, "kb"] == 0.5


def test_the_study_runs_and_is_not_repeated(tmp_path: Path) -> None:
    lines: list[str] = []
    arms = ["rae", "rae-kl-still"]
    report = study.run_study(TINY, tmp_path, [0], arms, lines.append)
    assert list(report["arms"]) == [study.ARMS[arm].label for arm in arms]
    starts = set()
    for arm in report["arms"].values():
        (run,) = arm["runs"]
        assert [point["update"] for point in run["curve"]] == [0, 1, 2]
        assert 0 < run["last"]["exploitability"] <= 1
        assert run["curve"][0] != run["curve"][-1]
        assert len(run["played"]) == 2
        starts.add(run["start"]["exploitability"])
    assert len(starts) == 1, "the arms of a seed begin alike"
    assert json.loads((tmp_path / "self_play_kuhn.json").read_text()) == report
    assert (tmp_path / "self_play_kuhn.png").stat().st_size > 1000

    lines.clear()
    assert study.run_study(TINY, tmp_path, [0], arms, lines.append) == report
    assert lines == [f"seed 0, {name}: done before" for name in arms]
    assert study.main(["--out", str(tmp_path), "--updates", "3"]) == 2


def test_arms_differ_only_in_what_they_are_about(tmp_path: Path) -> None:
    settings = study.StudySettings()
    configs = {name: study.train_config(name, settings, tmp_path, 3) for name in study.ARMS}
    algorithms = {name: config.algorithm.build() for name, config in configs.items()}
    assert {algorithm.name for algorithm in algorithms.values()} == {"rae"}
    kl = {name: algorithm.loss.kl_coef for name, algorithm in algorithms.items()}
    assert kl == {"rae": 0, "rae-kl": 0.1, "rae-still": 0, "rae-kl-still": 0.1}
    first = {name: config.policies["player"].betas[0] for name, config in configs.items()}
    assert first == {"rae": 0.9, "rae-kl": 0.9, "rae-still": 0.0, "rae-kl-still": 0.0}
    assert {config.seed for config in configs.values()} == {3}
    assert len({config.model_dump_json(exclude={"algorithm", "policies"}) for config in configs.values()}) == 1


def test_a_fall_counts_from_the_lesser_start() -> None:
    def run(start: float, last: float) -> dict[str, object]:
        end = {"exploitability": last, "value": -0.01, "unusable": 0.001}
        return {
            "seed": 0, "seconds": 30.0, "curve": [{"update": 0, **end}], "last": end, "average": end,
            "start": {**end, "exploitability": start}, "strategy": dict.fromkeys(_points(), 0.5), "played": [-0.1, 0.0],
        }  # fmt: skip

    report = gather({}, {"arm": [run(0.9, 0.1), run(0.4, 0.1)]}, [60.0])
    fall = report["arms"]["arm"]["summary"]["last_fall"]
    assert fall["seeds"] == pytest.approx([11 / 2.4, 4.0])
    assert fall["interval"][0] < fall["mean"] < fall["interval"][1]
    assert report["processor_minutes"] == 2.0
    assert "4.3×" in table(report)


def _points() -> list[str]:
    return [f"{card}{line}" for card, line in UNIFORM]


def test_the_page_is_generated_from_its_data() -> None:
    report = json.loads((study.DOCS / "self_play_kuhn.json").read_text(encoding="utf-8"))
    assert (study.DOCS / "self_play_kuhn.md").read_text(encoding="utf-8") == page(report)
    assert (study.DOCS / "self_play_kuhn.png").stat().st_size < 150_000
