"""Who plays whom, and what is said when nobody does."""

from __future__ import annotations

import asyncio

import pytest

from trainers.policies.base import Completion, Policy, Request, Sampling
from trainers.team import EVERYONE, Team, TeamError, parse_policy_specs


class Named(Policy):
    closed = 0

    async def generate(self, request: Request) -> list[Completion]:
        return [Completion(self.name, "stop")]

    async def close(self) -> None:
        self.closed += 1


def test_the_most_exact_role_wins() -> None:
    policies = {name: Named(name) for name in ("one", "all", "rest")}
    team = Team(policies, {"solver_0": "one", "solver": "all", EVERYONE: "rest"})
    assert team.for_agent("solver_0")[:2] == ("one", policies["one"])
    assert team.for_agent("solver_11")[:2] == ("all", policies["all"])
    assert team.for_agent("critic_0")[:2] == ("rest", policies["rest"])


def test_role_does_not_match_a_longer_name() -> None:
    team = Team({"p": Named("p")}, {"solver": "p"})
    with pytest.raises(TeamError, match=r"No policy plays 'resolver_0'.*\['solver'\].*--policy resolver=SPEC"):
        team.for_agent("resolver_0")


def test_single_plays_everyone_with_its_sampling() -> None:
    sampling = Sampling(temperature=0.0)
    team = Team.single(Named("p"), sampling)
    assert team.for_agent("anyone_3")[2] is sampling
    assert team.label == "p"


def test_sampling_is_by_policy() -> None:
    hot, cold = Sampling(temperature=2.0), Sampling(temperature=0.1)
    team = Team({"a": Named("a"), "b": Named("b")}, {"x": "a", "y": "b"}, {"a": hot, "b": cold})
    assert team.for_agent("x_0")[2] is hot
    assert team.for_agent("y_0")[2] is cold
    assert Team({"a": Named("a")}, {"x": "a"}).for_agent("x_0")[2] == Sampling()


def test_check_names_roles_that_nobody_has() -> None:
    team = Team({"p": Named("p")}, {"solver": "p", "verfier": "p"})
    with pytest.raises(TeamError, match=r"'verfier'; the roles .* are: solver, verifier\. Did you mean 'verifier'\?"):
        team.check(["solver_0", "verifier_0"])
    with pytest.raises(TeamError, match="'verifier_0'"):
        Team({"p": Named("p")}, {"solver": "p"}).check(["solver_0", "verifier_0"])
    Team({"p": Named("p")}, {"solver_1": "p", EVERYONE: "p"}).check(["solver_0", "solver_1"])


def test_unknown_policy_names_are_refused() -> None:
    with pytest.raises(TeamError, match="Role 'solver' names policy 'q'"):
        Team({"p": Named("p")}, {"solver": "q"})
    with pytest.raises(TeamError, match="Sampling 'q'"):
        Team({"p": Named("p")}, {"solver": "p"}, {"q": Sampling()})
    with pytest.raises(TeamError, match="at least one role"):
        Team({"p": Named("p")}, {})


@pytest.mark.parametrize(
    ("specs", "roles"),
    [
        (["oracle"], {"*": "oracle"}),
        (["solver=vllm:A", "verifier=oracle"], {"solver": "vllm:A", "verifier": "oracle"}),
        (["solver_0=random", "hf:m"], {"solver_0": "random", "*": "hf:m"}),
        (["openai:m@http://h/v1?key=x"], {"*": "openai:m@http://h/v1?key=x"}),
        (["solver=openai:m@http://h/v1?key=x"], {"solver": "openai:m@http://h/v1?key=x"}),
        (["replay:runs/a=b"], {"*": "replay:runs/a=b"}),
    ],
)
def test_parse_policy_specs(specs: list[str], roles: dict[str, str]) -> None:
    assert parse_policy_specs(specs) == roles


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([], "No policy was given"),
        (["solver="], "holds no policy spec"),
        ([" "], "holds no policy spec"),
        (["oracle", "random"], "all agents: 'oracle' and 'random'"),
        (["solver=oracle", "solver=random"], "role 'solver'"),
    ],
)
def test_parse_policy_specs_errors(specs: list[str], message: str) -> None:
    with pytest.raises(TeamError, match=message):
        parse_policy_specs(specs)


def test_the_same_spec_is_one_policy_and_is_closed_once() -> None:
    made: list[Named] = []

    def make(spec: str) -> Policy:
        made.append(Named(spec))
        return made[-1]

    team = Team.from_specs(["solver=A", "verifier=B", "critic=A"], make, Sampling(max_tokens=7))
    assert [policy.name for policy in made] == ["A", "B"]
    assert team.for_agent("solver_0")[1] is team.for_agent("critic_0")[1]
    assert team.for_agent("verifier_0")[2].max_tokens == 7
    assert team.label == "solver=A verifier=B critic=A"
    asyncio.run(Team({"x": made[0], "y": made[0]}, {"a": "x", "b": "y"}).close())
    assert made[0].closed == 1
