"""Who plays whom, and what is said when nobody does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainers.policies.base import Completion, Policy, Request, Sampling
from trainers.team import EVERYONE, Team, TeamError, assign_players, parse_policy_specs


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


def players(
    specs: list[str], options: dict[str, dict[str, Any]], *agents: str
) -> dict[str, tuple[str, dict[str, Any]]]:
    assigned = assign_players(specs, options, agents or None)
    return {role: (player.spec, dict(player.options)) for role, player in assigned.items()}


def test_options_of_all_reach_only_policies_with_a_model() -> None:
    assert players(["solver=vllm:A", "verifier=oracle"], {"*": {"engine": "async"}}) == {
        "solver": ("vllm:A", {"engine": "async"}),
        "verifier": ("oracle", {}),
    }


def test_options_of_a_role_win_and_split_it_from_the_rest() -> None:
    options = {"*": {"x": 1, "y": 1}, "solver": {"y": 2}, "solver_1": {"y": 3}}
    agents = ("solver_0", "solver_1", "verifier_0")
    assert players(["vllm:A"], options, *agents) == {
        "solver": ("vllm:A", {"x": 1, "y": 2}),
        "verifier": ("vllm:A", {"x": 1, "y": 1}),
        "solver_1": ("vllm:A", {"x": 1, "y": 3}),
    }


def test_options_of_a_role_reach_its_numbered_agents() -> None:
    assert players(["solver_0=vllm:A", "solver_1=random", "verifier=oracle"], {"solver": {"x": 1}}) == {
        "solver_0": ("vllm:A", {"x": 1}),
        "solver_1": ("random", {}),
        "verifier": ("oracle", {}),
    }


def test_nothing_is_loaded_for_a_role_that_no_agent_has() -> None:
    assert players(["solver_0=vllm:A", "vllm:B"], {"solver": {"x": 1}}, "solver_0", "verifier_0") == {
        "solver_0": ("vllm:A", {"x": 1}),
        "verifier": ("vllm:B", {}),
    }


@pytest.mark.parametrize(
    ("specs", "options", "message"),
    [
        (["oracle"], {"*": {"x": 1}}, r"Option x has no effect: 'oracle' plays, and only policies with a model"),
        (["solver=oracle", "verifier=hf:A"], {"solver": {"x": 1}}, "Option x for role 'solver' .*'oracle' plays"),
        (["replay:runs/a"], {"solver_0": {"x": 1}}, "Option x for role 'solver_0' .*'replay:runs/a' plays"),
        (["hf:A"], {"slover": {"x": 1}}, "No agent has the role 'slover'.*Did you mean 'solver'"),
        (["solver=hf:A", "verifier=hf:A"], {"judge": {"x": 1}}, "'judge', but no policy plays it"),
    ],
)
def test_options_that_reach_nobody(specs: list[str], options: dict[str, dict[str, Any]], message: str) -> None:
    with pytest.raises(TeamError, match=message):
        players(specs, options, "solver_0", "verifier_0")


def test_policies_are_shared_by_spec_and_options() -> None:
    made: list[tuple[str, dict[str, Any]]] = []

    def make(spec: str, **options: Any) -> Policy:
        made.append((spec, options))
        return Named(spec)

    options = {"*": {"n": 1}, "solver": {"p": "Be brief.", "q": 0}, "critic": {"q": 0, "p": "Be brief."}}
    team = Team.from_specs(["vllm:A"], make, Sampling(top_k=3), options)
    assert made == [("vllm:A", {"n": 1}), ("vllm:A", {"n": 1, "p": "Be brief.", "q": 0})]
    name, solver, sampling = team.for_agent("solver_0")
    assert solver is team.for_agent("critic_0")[1] is not team.for_agent("verifier_0")[1]
    assert name == "vllm:A (n=1, p=Be brief., q=0)"
    assert sampling.top_k == 3
    assert team.label == f"*=vllm:A (n=1) solver={name} critic={name}"


def test_long_options_that_start_alike_are_two_policies() -> None:
    texts = {role: {"system_prompt": "You are a careful mathematician. " + role} for role in ("solver", "verifier")}
    team = Team.from_specs(["solver=hf:A", "verifier=hf:A"], lambda spec, **_: Named(spec), options=texts)
    names = [team.policy_name(agent) for agent in ("solver_0", "verifier_0")]
    assert names == [f"hf:A (system_prompt=You are a careful mathematici…){end}" for end in ("", "#2")]


def test_label_of_one_policy_for_all_shows_its_options() -> None:
    team = Team.from_specs(["hf:A"], lambda spec, **_: Named(spec), options={"*": {"dtype": "bfloat16"}})
    assert team.label == "hf:A (dtype=bfloat16)"
