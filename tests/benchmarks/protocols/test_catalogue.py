"""Protocols: what they fix, what they refuse, and that a run by one is what its name says."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.protocols.apply import apply_protocol
from benchmarks.protocols.catalogue import PROTOCOLS, ProtocolError, find_protocol
from benchmarks.results import read_config, read_lines
from benchmarks.runner import RunSettings
from benchmarks.summary import summarize
from benchmarks.viewer.source import Source
from trainers.policies.base import Completion, Policy, Request, Sampling


class Sometimes(Policy):
    """Solves about a third of the episodes, by the seed of the request, and notes how it was sampled."""

    def __init__(self) -> None:
        super().__init__("oracle")
        self.samplings: set[Sampling] = set()

    async def generate(self, request: Request) -> list[Completion]:
        self.samplings.add(request.sampling)
        assert request.env is not None
        right = request.key[1] % 3 == request.key[0] % 3 and request.key[0] != 2
        return [Completion(request.env.oracle(request.agent) if right else r"\boxed{no}", "stop")]


def plain(**changes: Any) -> RunSettings:
    return RunSettings("math-2agent", ["oracle"], **changes)


def test_the_published_protocols() -> None:
    (run,) = PROTOCOLS["dr-mas"].runs
    assert (run.samples, run.figures) == (16, ("avg", "pass@16"))
    assert run.sampling_of(Sampling(max_tokens=77, temperature=0.1, top_k=3)) == Sampling(0.6, 0.95, -1, 77)
    greedy, sampled = PROTOCOLS["at-grpo"].runs
    assert (greedy.label, greedy.samples, greedy.sampling_of(Sampling()).temperature) == ("greedy", 1, 0.0)
    assert (sampled.label, sampled.samples, sampled.sampling_of(Sampling(0.3))) == ("sampled", 4, Sampling(1.0))
    assert all(protocol.name == name and protocol.description for name, protocol in PROTOCOLS.items())


def test_plain_leaves_everything_to_the_command() -> None:
    settings = plain(samples=7, sampling=Sampling(0.3, 0.4, 5, 6))
    (run,) = apply_protocol("plain", settings).values()
    assert (run.samples, run.sampling, run.protocol) == (7, settings.sampling, ("plain", "plain"))


def test_one_run_of_a_protocol() -> None:
    runs = apply_protocol("at-grpo/sampled", plain())
    assert [(label, run.samples, run.protocol) for label, run in runs.items()] == [
        ("sampled", 4, ("at-grpo", "sampled"))
    ]


@pytest.mark.parametrize(
    ("name", "settings", "given", "message"),
    [
        ("dr-mass", plain(), (), "no protocol 'dr-mass'.*Did you mean 'dr-mas'"),
        ("dr-mas/gready", plain(), (), "no run 'gready'; it has sampled"),
        ("dr-mas", plain(samples=1), ("samples",), "-k 1 contradicts --protocol dr-mas, which fixes -k at 16"),
        ("dr-mas", plain(), ("temperature",), "--temperature 1 contradicts .* at 0.6"),
        ("dr-mas", plain(), ("top_p",), "--top-p 1 contradicts .* at 0.95"),
        ("greedy", plain(sampling=Sampling(top_k=9)), ("top_k",), "--top-k 9 contradicts .* at -1"),
        ("at-grpo", plain(samples=4), ("samples",), r"-k 4 contradicts .* at 1 \(greedy\) and 4 \(sampled\)"),
    ],
)
def test_contradictions_are_refused(name: str, settings: RunSettings, given: tuple[str, ...], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        apply_protocol(name, settings, given)


def test_what_agrees_may_be_said() -> None:
    same = plain(samples=16, sampling=Sampling(0.6, 0.95))
    assert apply_protocol("dr-mas", same, ("samples", "temperature", "top_p"))["sampled"].samples == 16
    assert apply_protocol("dr-mas", plain(samples=1))["sampled"].samples == 16  # a default contradicts nothing


def test_avg_and_pass_at_16_by_counting_subsets(play_run: Callable[..., Any], tmp_path: Path) -> None:
    policy = Sometimes()
    (settings,) = apply_protocol("dr-mas", plain(n=5, out=tmp_path / "run")).values()
    changes = {name: getattr(settings, name) for name in ("samples", "sampling", "protocol")}
    play_run(lambda spec: policy, policies=["oracle"], n=5, **changes)
    assert policy.samplings == {Sampling(0.6, 0.95)}
    config = read_config(tmp_path / "run")
    assert config["context"]["protocol"] == {"name": "dr-mas", "run": "sampled"}
    assert (config["identity"]["samples"], config["identity"]["sampling"]["temperature"]) == (16, 0.6)
    solved: dict[int, list[bool]] = {}
    for record in read_lines(tmp_path / "run", "episodes.jsonl"):
        solved.setdefault(record["task_index"], []).append(record["success"])
    assert {index: len(each) for index, each in solved.items()} == dict.fromkeys(range(5), 16)
    assert [sum(each) for each in solved.values()] == [6, 5, 0, 6, 5]
    summary = summarize(tmp_path / "run")
    assert summary["avg_at_k"]["value"] == pytest.approx((6 + 5 + 0 + 6 + 5) / (5 * 16))
    assert summary["pass_at_k"]["16"]["value"] == pytest.approx(4 / 5)
    for k in (2, 4, 8):  # the definition: the share of all choices of k samples that hold a solved one
        chances = [
            sum(map(any, itertools.combinations(each, k))) / sum(1 for _ in itertools.combinations(each, k))
            for each in solved.values()
        ]
        assert summary["pass_at_k"][str(k)]["value"] == pytest.approx(sum(chances) / len(chances))


def test_a_protocol_of_one_run_is_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main("run math-2agent --policy oracle -n 2 --protocol dr-mas --out r --quiet".split()) == 0
    shown = capsys.readouterr().out
    assert "dr-mas, sampled" in shown
    assert "pass@16" in shown
    assert "32 of 32" in shown
    whole = (tmp_path / "r" / "episodes.jsonl").read_bytes()
    (tmp_path / "r" / "episodes.jsonl").write_bytes(whole[:9000])
    assert main("run --resume --out r --quiet".split()) == 0
    assert (tmp_path / "r" / "episodes.jsonl").read_bytes() == whole
    assert main("table r".split()) == 0
    assert "protocol dr-mas (sampled)" in capsys.readouterr().out.replace("\\", "")
    assert main("run math-2agent --policy oracle -n 2 --protocol dr-mas -k 1 --out s".split()) == 2
    assert "-k 1 contradicts --protocol dr-mas" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_find_protocol_by_name() -> None:
    assert find_protocol("greedy").runs[0].samples == 1
    with pytest.raises(ProtocolError, match="the protocols are plain, greedy, dr-mas, at-grpo"):
        find_protocol("xyz")


def test_the_viewer_is_told_the_protocol(play_run: Callable[..., Any]) -> None:
    result, _ = play_run(protocol=("dr-mas", "sampled"))
    assert Source(result.path).index()["protocol"] == {"name": "dr-mas", "run": "sampled"}
    assert json.loads(json.dumps(summarize(result.path)))["protocol"]["name"] == "dr-mas"
