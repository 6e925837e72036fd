"""Rules, levels, bounds and solver of Sokoban, against hand-worked cases and an independent simulator."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import time
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_envs.planning.sokoban import (
    MOVES,
    IllegalMove,
    LevelError,
    State,
    apply,
    bits,
    illegal_reason,
    parse_level,
    render,
    solved,
)
from llm_envs.planning.sokoban_bounds import assignment, bounds, reachable
from llm_envs.planning.sokoban_levels import Level, parse_levels, render_levels
from llm_envs.planning.sokoban_rooms import draw_start
from llm_envs.planning.sokoban_solver import path, shortest, solve

# ---- an independent simulator: characters in a list of lists, no bits --------------------------------------------

STEPS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
LIFT = {"@": " ", "+": ".", "$": " ", "*": "."}
DROP_BOX = {" ": "$", ".": "*"}
DROP_WORKER = {" ": "@", ".": "+"}


def naive_move(text, move):
    """The board after `move`, or None if it is illegal."""
    board = [list(row) for row in text.split("\n")]

    def at(row, column):
        inside = 0 <= row < len(board) and 0 <= column < len(board[row])
        return board[row][column] if inside else "#"

    (row, column) = next((r, c) for r, line in enumerate(board) for c, char in enumerate(line) if char in "@+")
    down, right = STEPS[move]
    front, behind = (row + down, column + right), (row + 2 * down, column + 2 * right)
    if at(*front) == "#":
        return None
    if at(*front) in "$*":
        if at(*behind) not in " .":
            return None
        board[behind[0]][behind[1]] = DROP_BOX[at(*behind)]
        board[front[0]][front[1]] = LIFT[at(*front)]
    board[front[0]][front[1]] = DROP_WORKER[at(*front)]
    board[row][column] = LIFT[at(row, column)]
    return "\n".join(map("".join, board))


def naive_solved(text):
    return "$" not in text


def naive_search(text, cost=lambda text, after: 1):
    """The least total cost of a solution by exhaustive search (costs 0 or 1), None if there is none."""
    best = {text: 0}
    queue = deque([text])
    while queue:
        board = queue.popleft()
        if naive_solved(board):
            return best[board]
        for move in MOVES:
            after = naive_move(board, move)
            if after is None:
                continue
            total = best[board] + cost(board, after)
            if total < best.get(after, total + 1):
                best[after] = total
                if total == best[board]:
                    queue.appendleft(after)
                else:
                    queue.append(after)
    return None


def is_push(before, after):
    return int([c in "$*" for c in before] != [c in "$*" for c in after])


def random_level(rng, height, width, boxes, walls):
    """Any level, solvable or not, with walls anywhere: only some have a wall all around."""
    free = []
    while len(free) < 2 * boxes + 1:
        board = [["#" if rng.random() < walls else " " for _ in range(width)] for _ in range(height)]
        free = [(r, c) for r, line in enumerate(board) for c, char in enumerate(line) if char == " "]
    for r, c in rng.sample(free, boxes):
        board[r][c] = "."
    *crates, worker = rng.sample(free, boxes + 1)
    for r, c in crates:
        board[r][c] = DROP_BOX[board[r][c]]
    board[worker[0]][worker[1]] = DROP_WORKER[board[worker[0]][worker[1]]]
    return "\n".join(map("".join, board))


def replay(state, moves):
    for move in moves:
        state = apply(state, move)
    return state


# ---- rules -------------------------------------------------------------------------------------------------------

CASES = [  # before, move, after (None: illegal)
    ("#@ #\n#$.#", "R", "# @#\n#$.#"),
    ("#@.#\n#$ #", "R", "# +#\n#$ #"),  # onto a goal
    ("#+ #\n#$ #", "R", "#.@#\n#$ #"),  # off a goal
    ("#@$ .#", "R", "# @$.#"),  # push
    ("#@$.#", "R", "# @*#"),  # push onto a goal
    ("#@*  #", "R", "# +$ #"),  # push off a goal
    ("#@*. #\n#  $ #", "R", "# +* #\n#  $ #"),  # from goal to goal
    ("#@ #\n#$.#", "L", None),  # wall
    ("#@ #\n#$.#", "U", None),  # the edge of the text is a wall
    ("#.@$#", "R", None),  # box against a wall
    (".@$", "R", None),  # box against the edge
    ("#.@$$ .#", "R", None),  # two boxes
    ("#.@$* #", "R", None),  # two boxes, one on a goal
    ("#@ $.#", "L", None),  # nothing is pulled: see below
    ("#.$ @#", "L", "#.$@ #"),
    ("@\n$\n.", "D", " \n@\n*"),
    (".\n$\n@", "U", "*\n@\n "),
    (".$@", "L", "*@ "),
]


@pytest.mark.parametrize(("before", "move", "after"), CASES)
def test_a_move_by_hand(before, move, after):
    state = parse_level(before)
    assert naive_move(before, move) == after  # the simulator keeps the same rules
    if after is None:
        assert illegal_reason(state, move)
        with pytest.raises(IllegalMove):
            apply(state, move)
    else:
        assert illegal_reason(state, move) is None
        assert render(apply(state, move)) == after
    assert render(state) == before  # never changed


def test_boxes_are_not_pulled():
    assert render(apply(parse_level("#. $@ #"), "R")) == "#. $ @#"


def test_reasons_say_what_is_in_the_way():
    state = parse_level("####\n#.@#\n# $#\n#  #")
    assert illegal_reason(state, "U") == "there is a wall above you"
    assert illegal_reason(state, "R") == "there is a wall to your right"
    assert illegal_reason(parse_level("#.$@"), "X") == "'X' is not a move; the moves are U, D, L, R"
    assert illegal_reason(parse_level(".@$"), "R") == "the box to your right would be pushed into a wall"
    assert illegal_reason(parse_level("@\n$\n$\n.\n."), "D") == (
        "the box below you has another box behind it, and only one can be pushed"
    )


def test_solved_only_with_every_box_on_a_goal():
    assert solved(parse_level("#@*#"))
    assert not solved(parse_level("#@*$.#"))
    assert not solved(parse_level("#+$#"))


@pytest.mark.parametrize("seed", range(40))
def test_random_playouts_agree_with_the_simulator(seed):
    rng = random.Random(seed)
    text = random_level(rng, rng.randint(2, 9), rng.randint(5, 9), rng.randint(1, 3), 0.15)
    state = parse_level(text)
    assert render(state) == text
    for _ in range(200):
        for move in MOVES:
            after = naive_move(text, move)
            assert (illegal_reason(state, move) is None) == (after is not None), (text, move)
        legal = [move for move in MOVES if naive_move(text, move) is not None]
        if not legal:
            break
        move = rng.choice(legal)
        text, state = naive_move(text, move), apply(state, move)
        assert render(state) == text
        assert solved(state) == naive_solved(text)
        assert parse_level(text) == state


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), moves=st.lists(st.sampled_from(MOVES), max_size=60))
def test_laws_of_a_move(seed, moves):
    state = parse_level(random_level(random.Random(seed), 6, 6, 3, 0.15))
    first = state
    for move in moves:
        if illegal_reason(state, move) is not None:
            continue
        after = apply(state, move)
        assert after.room is state.room
        assert after.boxes.bit_count() == first.boxes.bit_count()
        assert render(after).count("#") == render(first).count("#")
        assert (after.boxes ^ state.boxes).bit_count() in (0, 2)  # one box at most, and it leaves where it was
        assert abs(after.worker - state.worker) in (1, state.room.stride)
        assert not after.boxes & ~after.room.floor
        assert not after.boxes >> after.worker & 1
        state = after


def test_states_are_values():
    state = parse_level("#####\n#@$.#\n#####")
    twin = parse_level("#####\n#@$.#\n#####")
    assert state == twin
    assert hash(state) == hash(twin)
    assert state != apply(state, "R")
    assert state != parse_level("#####\n#@$ #\n#.###")
    assert state != "state"
    assert state.room != "room"
    assert copy.copy(state) is state
    assert copy.deepcopy(state) is state
    assert pickle.loads(pickle.dumps(state)) == state
    assert repr(state) == "State('#####\\n#@$.#\\n#####')"
    assert repr(state.room) == "Room(3×5, 1 goals)"
    with pytest.raises(AttributeError, match="cannot be changed"):
        state.worker = 1
    assert list(bits(0b10110)) == [1, 2, 4]
    assert state.worker == state.room.cell(1, 1)


# ---- text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["#####\n#@$.#\n#####", "  ####\n###@ #\n# $.#\n####", "+$", "#@$.\n#\n   #*"])
def test_a_level_is_written_as_it_was_read(text):
    assert render(parse_level(text)) == text


def test_what_lies_beyond_a_short_row_is_wall():
    state = parse_level("#######\n#@\n# $ . #\n#######")
    assert illegal_reason(state, "R") == "there is a wall to your right"
    assert not bounds(state.room).live >> state.room.cell(1, 3) & 1


def test_floor_may_be_written_visibly():
    assert render(parse_level("#@ $ .#"), floor="-") == "#@-$-.#"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "mine.txt:7: the level has no rows"),
        ("\n \n", "mine.txt:7: the level has no rows"),
        ("#####\n#@x.#", "mine.txt:8: unknown character 'x' in column 3; a level is written with # wall"),
        ("#@$.#\t", "mine.txt:7: unknown character '\\t' in column 6"),
        ("#####\n# $.#\n#####", "mine.txt:7-9: a level has exactly one worker (@ or +), found 0"),
        ("#@$.+#", "mine.txt:7: a level has exactly one worker (@ or +), found 2"),
        ("#@$$.#", "mine.txt:7: a level has as many boxes ($ or *) as goals (., * or +), found 2 and 1"),
        ("#@$#", "found 1 and 0"),
        ("#+$$.*#", "found 3 and 3"),
        ("#@ #", "mine.txt:7: a level has at least one box ($ or *), found none"),
    ],
)
def test_a_bad_level_is_refused(text, message):
    if "3 and 3" in message:
        parse_level(text)  # + and * are goals too
        return
    with pytest.raises(LevelError) as caught:
        parse_level(text, place="mine.txt", first_line=7)
    assert message in str(caught.value)


def test_a_file_of_levels_is_written_as_it_was_read():
    text = "; 0\n####\n#@$.\n\n; name of it\n.$@\n\n+$\n\n"
    levels = parse_levels(text)
    assert [level.title for level in levels] == ["0", "name of it", None]
    assert render_levels(levels) == text


def test_files_of_other_hands_are_read():
    levels = parse_levels(";1\r\n#@$.#\r\n;2\r\n\r\n#.$@#")
    assert levels == [Level("1", parse_level("#@$.#")), Level("2", parse_level("#.$@#"))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("; 0\n#@$.#\n\n; 1\n#####\n#@$ #\n", "f.txt:5-6: a level has as many boxes"),
        ("; 0\n\n; 1\n#@$.#\n", "f.txt:1: the header has no level"),
        ("#@$.#\n\n; 1\n", "f.txt:3: the header has no level"),
        ("\n\n", "f.txt: there are no levels in it"),
        ("#@$.#\n\n\n#@$.#\n# b #", "f.txt:5: unknown character 'b' in column 3"),
    ],
)
def test_a_bad_file_is_refused_with_the_line(text, message):
    with pytest.raises(LevelError) as caught:
        parse_levels(text, place="f.txt")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["boxoban_medium_valid_000.txt", "boxoban_unfiltered_test_000.txt"])
def test_every_boxoban_level_is_written_as_it_was_read(shared_data, name):
    text = (shared_data / "planning" / name).read_text(encoding="utf-8")
    levels = parse_levels(text)
    assert len(levels) == 1000
    assert [level.title for level in levels] == [str(number) for number in range(1000)]
    assert all(level.start.boxes.bit_count() == 4 for level in levels)
    assert render_levels(levels) == text


# ---- bounds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200))
def test_the_assignment_is_the_cheapest(seed):
    rng = random.Random(seed)
    size = rng.randint(1, 5)
    costs = [[None if rng.random() < 0.3 else rng.randint(0, 9) for _ in range(size)] for _ in range(size)]
    totals = [
        sum(costs[row][column] for row, column in enumerate(order))
        for order in itertools.permutations(range(size))
        if all(costs[row][column] is not None for row, column in enumerate(order))
    ]
    assert assignment(costs) == min(totals, default=None)


def test_reachable_stops_at_boxes():
    state = parse_level("#######\n#@ $ .#\n#######")
    region = reachable(1 << state.worker, state.room.floor & ~state.boxes, state.room.stride)
    assert list(bits(region)) == [state.room.cell(1, 1), state.room.cell(1, 2)]


@pytest.mark.parametrize("seed", range(60))
def test_the_bound_for_one_box_is_the_number_of_pushes(seed):
    rng = random.Random(seed)
    text = random_level(rng, 5, 5, 1, 0.25)
    state = parse_level(text)
    bound, pushes = bounds(state.room).pushes(state.boxes), naive_search(text, is_push)
    # The bound is for the worker at the side where it helps; from there it is exact.
    reached = {text}
    boxes = state.boxes
    best = pushes
    for cell in bits(state.room.floor & ~boxes):
        moved = render(State(state.room, cell, boxes))
        if moved not in reached:
            other = naive_search(moved, is_push)
            best = other if best is None else best if other is None else min(best, other)
    assert bound == best


LOST = {
    "in a corner": "#####\n#$  #\n#@ .#\n#####",
    "at a wall without a goal": "######\n# $  #\n#@   #\n#  . #\n######",
    "the worker cannot come below it": "#######\n#  @  #\n#.    #\n#$    #\n#######",
    "four in a square": "#######\n#  .  #\n# $$@ #\n# $$  #\n#  ...#\n#######",
    "side by side at walls": "########\n#@     #\n#  ##  #\n#  $$  #\n#      #\n#  ..  #\n#  ##  #\n########"[:0]
    or "######\n#@   #\n# $$ #\n# ## #\n#  ..#\n######",
    "two boxes for the one goal at that wall": "#######\n# $.$ #\n#  @  #\n#  .  #\n#######",
}


@pytest.mark.parametrize("why", LOST)
def test_lost_positions_are_known(why):
    state = parse_level(LOST[why])
    assert bounds(state.room).pushes(state.boxes) is None
    assert naive_search(LOST[why]) is None


def test_what_only_looks_lost_is_not():
    for text, pushes in [
        ("######\n#@   #\n# ** #\n# ## #\n# $. #\n######", 1),  # stuck, but on goals
        ("########\n#@     #\n# $  $ #\n#.   ###\n#.   ###\n########", 8),
        ("#######\n# $ . #\n#  @  #\n#  $. #\n#######", 3),
    ]:
        state = parse_level(text)
        assert bounds(state.room).pushes(state.boxes) == pushes
        assert naive_search(text, is_push) >= pushes


# ---- solver ------------------------------------------------------------------------------------------------------


def test_three_distinct_results():
    assert solve(parse_level("#@$.#")) == ("solved", ("R",), 1)
    assert solve(parse_level("#####\n#$  #\n#@ .#\n#####")).status == "unsolvable"
    hard = parse_level("########\n#  .   #\n# $  $ #\n#.  $  #\n# @ .  #\n########")
    for search in (solve, shortest):
        assert search(hard).status == "solved"
        given_up = search(hard, max_positions=2)
        assert (given_up.status, given_up.positions) == ("undecided", 2)
        assert not solved(replay(hard, given_up.moves))  # legal moves, and no solution


def test_unsolvable_without_a_lost_box():
    # Nothing is stuck, but the worker cannot come to the other side of the box.
    text = "#######\n#@ $ .#\n#######"
    assert naive_search(text) == 3
    text = "#######\n#  $@.#\n#######"
    assert naive_search(text) is None
    for search in (solve, shortest):
        assert search(parse_level(text)).status == "unsolvable"


def test_a_solved_level_needs_no_move():
    for search in (solve, shortest):
        assert search(parse_level("#@*#")) == ("solved", (), 0)


def test_a_walk_is_the_shortest_and_prefers_the_order_of_moves():
    state = parse_level("#####\n#@  #\n# # #\n#  $#\n#  .#\n#####")
    cell = state.room.cell
    assert path(state.room, state.boxes, state.worker, cell(3, 2)) == ["D", "D", "R"]
    assert path(state.room, state.boxes, state.worker, cell(2, 3)) == ["R", "R", "D"]
    assert path(state.room, state.boxes, state.worker, state.worker) == []
    with pytest.raises(ValueError, match="no way"):
        path(state.room, state.boxes, state.worker, cell(3, 3))


@pytest.mark.parametrize("seed", range(120))
def test_both_searches_agree_with_exhaustive_search(seed):
    rng = random.Random(seed)
    text = random_level(rng, rng.randint(3, 5), rng.randint(4, 5), 1 + seed % 3, rng.choice((0.0, 0.1, 0.2)))
    state, least = parse_level(text), naive_search(text)
    some, best = solve(state), shortest(state)
    expected = "unsolvable" if least is None else "solved"
    assert (some.status, best.status) == (expected, expected), text
    bound = bounds(state.room).pushes(state.boxes)
    if least is None:
        return
    assert len(best.moves) == least
    assert len(some.moves) >= least
    for found in (some, best):
        after = text
        for move in found.moves:
            after = naive_move(after, move)
        assert naive_solved(after)
    assert bound is not None
    assert bound <= naive_search(text, is_push)


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_shorter_than_the_shortest(seed):
    rng, start = random.Random(seed), None
    while start is None:
        start = draw_start(rng, (6, 7), 2, 0.15)
    found = shortest(start)
    assert solved(replay(start, found.moves))
    assert len(found.moves) == naive_search(render(start))


def test_there_are_solvable_and_unsolvable_levels_among_the_random_ones():
    results = set()
    for seed in range(120):
        rng = random.Random(seed)
        text = random_level(rng, rng.randint(3, 5), rng.randint(4, 5), 1 + seed % 3, rng.choice((0.0, 0.1, 0.2)))
        results.add((solve(parse_level(text)).status, 1 + seed % 3))
    assert results == set(itertools.product(("solved", "unsolvable"), (1, 2, 3)))


def boxoban(shared_data, name):
    return parse_levels((shared_data / "planning" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "step"), [("boxoban_unfiltered_test_000.txt", 5), ("boxoban_medium_valid_000.txt", 10)]
)
def test_boxoban_levels_are_solved(shared_data, name, step):
    levels = boxoban(shared_data, name)[::step]
    found = [solve(level.start, max_positions=10_000) for level in levels]
    assert all(solved(replay(level.start, each.moves)) for level, each in zip(levels, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["boxoban_unfiltered_test_000.txt", "boxoban_medium_valid_000.txt"])
def test_all_boxoban_levels_are_solved_within_five_seconds_each(shared_data, name):
    in_time = 0
    for level in boxoban(shared_data, name):
        begin = time.process_time()
        found = solve(level.start)
        in_time += time.process_time() - begin <= 5 and solved(replay(level.start, found.moves))
    assert in_time >= 950


def test_shortest_solutions_of_boxoban_levels(shared_data):
    levels = boxoban(shared_data, "boxoban_unfiltered_test_000.txt")[:10]
    found = [shortest(level.start, max_positions=20_000) for level in levels]
    some = [solve(level.start) for level in levels]
    assert [each.status for each in found] == ["solved"] * 10
    assert all(len(best.moves) <= len(each.moves) for best, each in zip(found, some, strict=True))
    assert all(solved(replay(level.start, each.moves)) for level, each in zip(levels, found, strict=True))
