"""The base of the planning family by hand, on a line of fields: turns, rewards, history, the coder's programs."""

from __future__ import annotations

import pytest
from gymnasium import error
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.planning.base import IllegalMove, PlanningEnv
from llm_envs.planning.pair import PairEnv
from llm_envs.tasks import ListTaskSet, Task

STEPS = {"L": -1, "R": 1}


class Line(PlanningEnv):
    """Walk from field 0 to field 4 of a line that begins at -3; beyond that the line ends."""

    metadata = {"name": "line_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    default_tasks = "line"

    def _load_tasks(self, tasks, split, **options):
        return ListTaskSet([Task("line/0", "At 0, to 4.", "[R, R, R, R]", {"optimal_length": 4})])

    def _rules(self):
        return "Walk to field 4."

    def _moves_help(self):
        return "A move is L or R."

    def _examples(self):
        return ("[R]", "[L, R]", "[R, R, R, R]")

    def _new_state(self):
        return 0

    def _state_text(self, state):
        return f"At {state}."

    def _read_move(self, item):
        return item if item in STEPS else None

    def _move(self, state, move):
        if state + STEPS[move] < -3:
            raise IllegalMove("the line ends here")
        return state + STEPS[move]

    def _solved(self, state):
        return state == 4

    def _distance(self, state):
        return abs(4 - state)

    def _solution(self, state):
        return ["R"] * (4 - state) if state < 4 else ["L"] * (state - 4)


class LinePair(Line, PairEnv):
    metadata = {**Line.metadata, "name": "line_pair_v0"}


def turn(env, text):
    """Plays one turn; returns what it brought each agent, by part, without the zeros."""
    env.step(text)
    mine = {a: {k: v for k, v in env.infos[a]["reward_parts"].items() if v} for a in env.possible_agents}
    for agent in env.possible_agents:
        assert sum(mine[agent].values()) == pytest.approx(env._cumulative_rewards[agent])
    return mine


def fresh(kind=Line, **kwargs):
    env = kind(**kwargs)
    env.reset(seed=0)
    return env


# ---- the planner alone -------------------------------------------------------------------------------------------


def test_a_shortest_solution_earns_everything():
    env = fresh()
    parts = turn(env, "So: [R, R, R, R]")
    assert parts == {"planner_0": pytest.approx({"team": 1, "optimal": 0.5, "step": -0.04, "progress": 0.5})}
    assert env.success
    assert env.terminations == {"planner_0": True}
    assert env.truncations == {"planner_0": False}
    assert {k: env.infos["planner_0"][k] for k in ("distance", "moves", "optimal_length")} == {
        "distance": 0, "moves": 4, "optimal_length": 4,
    }  # fmt: skip


def test_a_detour_is_a_solution_but_not_optimal():
    env = fresh()
    assert turn(env, "[R, L]") == {"planner_0": pytest.approx({"step": -0.02})}
    assert turn(env, "[R, R, R, R]") == {"planner_0": pytest.approx({"team": 1, "step": -0.04, "progress": 0.5})}


def test_a_shortest_solution_in_several_turns_is_still_optimal():
    env = fresh()
    turn(env, "[R]")
    turn(env, "[R, R]")
    assert turn(env, "[R]")["planner_0"]["optimal"] == 0.5


def test_play_stops_at_the_first_illegal_move_which_is_paid_once():
    env = fresh()
    parts = turn(env, "[L, L, L, L, L, L, R]")
    assert parts == {"planner_0": pytest.approx({"step": -0.03, "illegal": -0.1, "progress": -0.5 * 3 / 4})}
    assert "3 moves were made; then L is illegal: the line ends here. What came after it was not played.\nAt -3." in (
        env.observe("planner_0")
    )
    assert env.infos["planner_0"]["moves"] == 3
    assert "invalid_action" not in env.infos["planner_0"]


def test_play_stops_at_the_goal():
    env = fresh()
    turn(env, "[R, R, R, R, R, R]")
    assert env.success
    assert env.infos["planner_0"]["moves"] == 4


def test_an_unusable_turn_is_lost_and_costs_the_penalty_only():
    env = fresh()
    assert turn(env, "go right") == {"planner_0": {"invalid": -0.1}}
    assert "(no usable list of moves)" in env.observe("planner_0")
    assert "No list of moves was found" in env.observe("planner_0")
    turn(env, "[R, R, R, R]")
    assert env.success


def test_running_out_of_turns_is_no_success():
    env = fresh(max_rounds=2)
    turn(env, "[R]")
    assert turn(env, "[R]") == {"planner_0": pytest.approx({"step": -0.01, "progress": 0.125})}
    assert env.truncations == {"planner_0": True}
    assert env.terminations == {"planner_0": False}
    assert not env.success


def test_the_cost_of_steps_never_outweighs_arriving():
    env = fresh(max_moves=1000)
    assert turn(env, "[" + "R, L, " * 200 + "R]")["planner_0"]["step"] == pytest.approx(-0.5)
    assert "step" not in turn(env, "[L]")["planner_0"]


def test_more_moves_than_the_limit_are_unusable():
    env = fresh(max_moves=3)
    assert turn(env, "[R, R, R, R]") == {"planner_0": {"invalid": -0.1}}
    assert env.oracle("planner_0") == "[R, R, R]"


def test_coefficients_can_be_changed():
    env = fresh(rewards={"goal": 3, "optimal": 0, "step": 0, "progress": 0})
    assert turn(env, "[R, R, R, R]") == {"planner_0": {"team": 3.0}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rewards": {"gaol": 1}}, "has no part 'gaol'. Did you mean 'goal'"),
        ({"rewards": {"goal": float("nan")}}, r"`rewards\['goal'\]` must be a finite number, actual value: nan"),
        ({"rewards": {"goal": True}}, "finite number"),
        ({"max_moves": 0}, "`max_moves` must be an integer of 1 or more, actual value: 0"),
        ({"max_rounds": 0}, "`max_rounds` must be"),
        ({"rewards": 3}, r"`rewards` must be a mapping such as {'step': 0}, actual value: 3"),
        ({"task_options": 3}, r"`task_options` must be a mapping such as {'seed': 1}, actual value: 3"),
        ({"notation": ["moves"]}, r"`notation` must be one of moves, actual value: \['moves'\]"),
        ({"notation": "words"}, "`notation` must be one of moves, actual value: 'words'"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(error.Error, match=message):
        Line(**arguments)


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan"), "3", True, None])
def test_a_bad_time_limit_is_refused(seconds):
    with pytest.raises(error.Error, match="`time_limit` must be a number of seconds above 0"):
        LinePair(time_limit=seconds)


plans = st.lists(st.sampled_from("LR"), min_size=1, max_size=8).map(lambda plan: f"[{', '.join(plan)}]")


@given(st.lists(plans, min_size=4, max_size=4))
def test_progress_telescopes(texts):
    env, progress = fresh(), 0.0
    for text in texts:
        if env.round_agents:
            progress += turn(env, text)["planner_0"].get("progress", 0.0)
    assert progress == pytest.approx(0.5 * (4 - env.infos["planner_0"]["distance"]) / 4)


# ---- coder and planner -------------------------------------------------------------------------------------------


def program(source):
    return f"```python\n{source}\n```"


SOLVER = "n = int(input().split()[1].strip('.'))\nprint(['R'] * (4 - n))"


def test_the_pair_takes_turns_and_shares_the_outcome():
    env = fresh(LinePair)
    assert env.agent_selection == "coder_0"
    first = turn(env, program(SOLVER))
    assert first["coder_0"] == pytest.approx({"program": 1.0})
    assert {k: env.infos["coder_0"][k] for k in ("run_status", "program_solves")} == {
        "run_status": "ok", "program_solves": True,
    }  # fmt: skip
    assert env.infos["coder_0"]["isolation"] in ("bwrap", "userns")
    seen = env.observe("planner_0")
    assert SOLVER in seen  # the second agent sees what the first one did
    assert "[output of the program]\n['R', 'R', 'R', 'R']" in seen
    last = turn(env, "[R, R, R, R]")
    assert last["planner_0"] == pytest.approx({"team": 1, "optimal": 0.5, "step": -0.04, "progress": 0.5})
    assert {k: last["coder_0"][k] for k in ("team", "optimal")} == {"team": 1, "optimal": 0.5}
    assert env.success


def test_a_program_reads_the_current_state():
    env = fresh(LinePair)
    turn(env, program(SOLVER))
    turn(env, "[R]")
    turn(env, program(SOLVER))
    assert "[output of the program]\n['R', 'R', 'R']" in env.observe("planner_0")


def test_the_planner_decides_whatever_the_program_prints():
    env = fresh(LinePair, max_rounds=1)
    turn(env, program(SOLVER))
    turn(env, "[L]")
    assert not env.success
    assert env.infos["coder_0"]["reward_parts"].get("team", 0.0) == 0.0


@pytest.mark.parametrize(
    ("sources", "paid"),
    [
        (("x = (", "1/0", "print('no list')", SOLVER), (0.0, 0.1, 0.1, 0.8)),
        ((SOLVER, "x = (", SOLVER, "1/0"), (1.0, 0.0, 0.0, 0.0)),  # nothing is taken back, and nothing paid twice
    ],
)
def test_programs_are_worth_the_best_of_them(sources, paid):
    env = fresh(LinePair)
    earned = []
    for source in sources:
        earned.append(turn(env, program(source))["coder_0"].get("program", 0.0))
        turn(env, "nothing")
    assert earned == pytest.approx(paid)


@pytest.mark.parametrize(
    ("source", "status", "shown", "worth"),
    [
        ("1/0", "error", "(failed: error) ZeroDivisionError: division by zero", 0.1),
        ("while True: pass", "timeout", "(failed: timeout)", 0.1),
        ("print('x' * 10_000_000)", "output", "(failed: output)", 0.1),
        ("print('garbage [U, ]')", "ok", "garbage [U, ]", 0.2),
        ("print('[L, L, L, L, L]')", "ok", "[L, L, L, L, L]", 0.2),
        ("print('[R]' * 5000)", "ok", "[R][R]", 0.2),
        ("pass", "ok", "(nothing was printed)", 0.2),
        ("def f(:", "error", "(failed: error) SyntaxError", 0.0),
        ("print('[R, R, R, R]'); raise SystemExit(3)", "error", "(failed: error)", 0.1),  # it did not run
    ],
)
def test_programs_that_go_wrong(source, status, shown, worth):
    env = fresh(LinePair, time_limit=0.5)
    assert turn(env, program(source))["coder_0"].get("program", 0.0) == pytest.approx(worth)
    assert env.infos["coder_0"]["run_status"] == status
    assert shown in env.observe("planner_0")
    assert len(env.observe("planner_0")) < 4000
    assert env.agent_selection == "planner_0"
    turn(env, "[R, R, R, R]")
    assert env.success


def test_no_program_costs_the_coder_its_turn():
    env = fresh(LinePair)
    assert turn(env, "[R, R, R, R]")["coder_0"] == {"invalid": -0.1}
    assert "[coder_0]\n(no usable program)" in env.observe("planner_0")
    assert env.agent_selection == "planner_0"


def test_another_runner_can_be_given():
    seen = []

    def run(code, stdin):
        from llm_envs.tools.sandbox import RunResult

        seen.append((code, stdin))
        return RunResult("ok", "[R, R, R, R]", "", 0.0, 0, "none", 0)

    env = fresh(LinePair, run=run)
    turn(env, program("anything"))
    assert seen == [("anything\n", "At 0.")]
    assert env.infos["coder_0"]["isolation"] == "none"
