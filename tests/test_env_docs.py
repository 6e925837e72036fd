"""The environment pages are what the docstrings say."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(scope="module")
def pages(repository):
    spec = importlib.util.spec_from_file_location("generate_env_docs", repository / "scripts" / "generate_env_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages()


def test_pages_are_up_to_date(pages):
    stale = [path.name for path, text in pages.items() if not path.is_file() or path.read_text() != text]
    assert not stale, f"run scripts/generate_env_docs.py: {stale}"


def test_every_page_has_its_sections(pages):
    for path, text in pages.items():
        if path.name != "index.md":
            for heading in ("## Observations", "## Actions", "## Rewards", "## Episode end", "## Arguments"):
                assert heading in text, (path.name, heading)
