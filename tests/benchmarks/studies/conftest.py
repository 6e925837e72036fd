"""The studies' environments, registered for one test at a time: other tests go through the whole registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.studies import dr_mas_search, short_sudoku
from benchmarks.studies.short_plan_path import PAIR, SOLO, register
from llm_envs.registration import EnvSpec, registry

_IDS = (SOLO, PAIR, short_sudoku.SOLO, short_sudoku.PAIR, dr_mas_search.SEARCH)
_SPECS: dict[str, EnvSpec] = {}  # an id can be given to PettingZoo only once


@pytest.fixture(autouse=True)
def study_envs() -> Iterator[None]:
    registry.update(_SPECS)
    register()
    dr_mas_search.register()
    short_sudoku.register()
    yield
    _SPECS.update({env_id: registry.pop(env_id) for env_id in _IDS})
