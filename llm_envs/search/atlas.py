"""Atlas: a fictional world with a document for each thing in it, and questions that take one to four documents.

A world has countries, cities, rivers, mountains, companies, people and books. Every fact about a thing stands in its
own document and has one value, so a chain of facts ("the mayor of the city where … has its head office") has one end:
every question has exactly one answer. All names are made up, so nothing can be known beforehand, and no hop can be
skipped: neither the answer nor a link of the chain stands in an earlier document than the one that is asked for.

Worlds are a function of (split, seed, number of documents). A name belongs to one split by a hash of the name, so
worlds of different splits have no name in common, whatever their seeds.

>>> task = load_atlas("train", hops=2)[0]
>>> len(task.data["supporting_titles"]), task.answer in task.question
(2, False)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Any

from llm_envs.tasks import Draft, ProceduralTaskSet, TaskError, check_split, reject_options, stable_hash
from llm_envs.tools.retrieval.base import Passage, Retriever

__all__ = ["DEFAULT_DOCUMENTS", "DEFAULT_HOPS", "MAX_HOPS", "World", "atlas_retriever", "load_atlas", "world"]

VERSION = 1
MAX_HOPS = 4
DEFAULT_HOPS = (1, 2, 3)
"""What a team can look up one after the other in the default of four turns, of which the last is for the answer."""
DEFAULT_DOCUMENTS = 1000
MIN_DOCUMENTS = 100
_MAX_WALKS = 2000

# fmt: off
_ONSETS = ("b", "br", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "pr", "r", "s", "sk",
           "t", "th", "tr", "v", "vr", "w", "y", "z")
_RARE = ("aa", "ae", "ua", "uo")  # each name has one: hardly any word or name of a real language does
_VOWELS = ("a", "e", "i", "o", "u")
_CODAS = ("l", "m", "n", "r", "s", "k", "th", "nd", "rn", "sk", "lt", "v", "rd", "")
# fmt: on


@dataclass(frozen=True, slots=True)
class Relation:
    """A fact that every thing of a kind has.

    Attributes:
        name: What it is called.
        target: The kind of thing that its value is, or None for a plain value.
        phrase: The value, described by the thing ``{x}``: what longer questions are made of. Empty for a plain value,
            which leads nowhere.
        ask: The question for it.
        say: Sentences that state it; one is chosen for each document.
    """

    name: str
    target: str | None
    phrase: str
    ask: str
    say: tuple[str, ...]


RELATIONS: dict[str, tuple[Relation, ...]] = {
    "country": (
        Relation("capital", "city", "the capital of {x}", "What is the capital of {x}?",
                 ("The capital of {x} is {v}.", "{x} is governed from its capital, {v}.")),
        Relation("language", None, "", "What is the official language of {x}?",
                 ("The official language of {x} is {v}.", "In schools and courts of {x} people speak {v}.")),
        Relation("currency", None, "", "What is the currency of {x}?",
                 ("Its currency is called the {v}.", "People in {x} pay in the {v}, the national currency.")),
        Relation("founded", None, "", "In which year was {x} founded?",
                 ("{x} was founded as a state in {v}.", "The state was founded in the year {v}.")),
    ),
    "city": (
        Relation("country", "country", "the country in which {x} lies", "In which country does {x} lie?",
                 ("{x} lies in {v}.", "It is one of the larger cities of {v}.")),
        Relation("river", "river", "the river on which {x} stands", "On which river does {x} stand?",
                 ("{x} stands on the {v}.", "The {v} runs through the middle of the city.")),
        Relation("mayor", "person", "the mayor of {x}", "Who is the mayor of {x}?",
                 ("The mayor of {x} is {v}.", "Its mayor, {v}, was elected by the city council.")),
        Relation("population", None, "", "How many inhabitants does {x} have?",
                 ("{x} has {v} inhabitants.", "At the last census {v} inhabitants were counted.")),
    ),
    "river": (
        Relation("source", "mountain", "the mountain on which the {x} rises", "On which mountain does the {x} rise?",
                 ("The {x} rises on {v}.", "Its source lies high on {v}.")),
        Relation("sea", None, "", "Into which sea does the {x} flow?",
                 ("It flows into the {v}.", "The river ends in the {v}.")),
        Relation("length", None, "", "How many kilometres long is the {x}?",
                 ("The {x} is {v} kilometres long.", "Its length is {v} kilometres.")),
    ),
    "mountain": (
        Relation("climber", "person", "the first person who climbed {x}", "Who was the first person to climb {x}?",
                 ("The first person to climb {x} was {v}.", "{v} reached the summit before anyone else.")),
        Relation("height", None, "", "How many metres high is {x}?",
                 ("{x} is {v} metres high.", "The summit stands at {v} metres above the sea.")),
    ),
    "company": (
        Relation("seat", "city", "the city where {x} has its head office",
                 "In which city does {x} have its head office?",
                 ("{x} has its head office in {v}.", "The company is run from its head office in {v}.")),
        Relation("founder", "person", "the founder of {x}", "Who founded {x}?",
                 ("{x} was founded by {v}.", "Its founder is {v}.")),
        Relation("founded", None, "", "In which year was {x} founded?",
                 ("The company was founded in {v}.", "{x} has been in business since it was founded in {v}.")),
    ),
    "person": (
        Relation("birthplace", "city", "the birthplace of {x}", "In which city was {x} born?",
                 ("{x} was born in {v}.", "The birthplace of {x} is {v}.")),
        Relation("teacher", "person", "the teacher of {x}", "Who was the teacher of {x}?",
                 ("{x} was a pupil of {v}.", "The teacher of {x} was {v}.")),
        Relation("employer", "company", "the company for which {x} works", "For which company does {x} work?",
                 ("{x} works for {v}.", "{x} is employed by {v}.")),
        Relation("born", None, "", "In which year was {x} born?",
                 ("The year of birth of {x} is {v}.", "Records give {v} as the year of birth.")),
    ),
    "book": (
        Relation("author", "person", "the author of {x}", "Who is the author of {x}?",
                 ("{x} was written by {v}.", "The author of {x} is {v}.")),
        Relation("publisher", "company", "the publisher of {x}", "Which company is the publisher of {x}?",
                 ("It was published by {v}.", "The publisher of {x} is {v}.")),
        Relation("hero", None, "", "What is the name of the main character of {x}?",
                 ("The main character is called {v}.", "{x} follows its main character, {v}.")),
    ),
}  # fmt: skip
"""The facts of each kind of thing."""

_SHARES = {"country": 2, "city": 16, "river": 6, "mountain": 6, "company": 16, "person": 32, "book": 22}
_INTRODUCTIONS = {
    "country": "{x} is a country.",
    "city": "{x} is a city.",
    "river": "The {x} is a river.",
    "mountain": "{x} is a mountain.",
    "company": "{x} is a company.",
    "person": "{x} is a person of public life.",
    "book": "{x} is a novel.",
}
_BOOKS = ("The {n} Letters", "A Winter in {n}", "Songs of {n}", "The Last {n}", "Beyond {n}", "The House of {n}")
_COMPANIES = ("{n} Works", "{n} Brothers", "{n} Trading", "{n} Instruments", "{n} Mills")


@dataclass(slots=True)
class Thing:
    """A thing of the world: its document and its facts.

    Attributes:
        position: Of its document.
        kind: A key of :data:`RELATIONS`.
        name: Unique; the title of its document.
        aliases: Other names that count as answers.
        facts: For each relation the position of a thing, or a value as text.
        text: Its document.
    """

    position: int
    kind: str
    name: str
    aliases: tuple[str, ...] = ()
    facts: dict[str, int | str] = field(default_factory=dict)
    text: str = ""


class World:
    """A world and its documents.

    Args:
        split: ``"train"`` or ``"test"``.
        seed: Another seed, another world.
        documents: How many things there are, about; at least 100.
    """

    def __init__(self, split: str, seed: int, documents: int) -> None:
        self.split, self.seed, self.documents = split, seed, documents
        rng = random.Random(stable_hash("atlas", VERSION, split, seed, documents))
        names = _Names(rng, split)
        self.things: list[Thing] = []
        self._by_kind: dict[str, list[Thing]] = {}
        for kind, share in _SHARES.items():
            count = max(4, documents * share // sum(_SHARES.values()))
            self._by_kind[kind] = [self._thing(kind, rng, names) for _ in range(count)]
        for thing in self.things:
            for relation in RELATIONS[thing.kind]:
                thing.facts[relation.name] = self._fact(thing, relation, rng, names)
        for country in self._by_kind["country"]:  # a capital lies in its country
            self.things[int(country.facts["capital"])].facts["country"] = country.position
        for thing in self.things:
            thing.text = self._document(thing, rng)

    def passages(self) -> list[Passage]:
        """The documents."""
        return [Passage(self._id(thing), thing.name, thing.text) for thing in self.things]

    def draw(self, rng: random.Random, hops: int) -> Draft:
        """A random question that takes ``hops`` documents.

        Raises:
            TaskError: None is found, which takes a very small world.
        """
        for _ in range(_MAX_WALKS):
            draft = self._walk(rng, hops)
            if draft is not None:
                return draft
        raise TaskError(f"atlas: no question of {hops} hops in a world of {len(self.things)} documents; ask for more")

    def _walk(self, rng: random.Random, hops: int) -> Draft | None:
        thing = self.things[rng.randrange(len(self.things))]
        path, phrase = [thing], thing.name
        for _ in range(hops - 1):
            links = [relation for relation in RELATIONS[thing.kind] if relation.target is not None]
            relation = rng.choice(links)
            thing = self.things[int(thing.facts[relation.name])]
            path.append(thing)
            phrase = relation.phrase.format(x=phrase)
        last = rng.choice(RELATIONS[thing.kind])
        value = thing.facts[last.name]
        answers = self._answers(last, value)
        question = last.ask.format(x=phrase).replace(
            "the the ", "the "
        )  # a river's name takes an article, a phrase has one
        if isinstance(value, int):
            path.append(self.things[value])
        if len({step.position for step in path}) < len(path) or not _every_hop_needed(path[:hops], answers, question):
            return None
        used = path[:hops]
        data: dict[str, Any] = {
            "answers": answers,
            "supporting_titles": [step.name for step in used],
            "supporting_ids": [self._id(step) for step in used],
            "hops": hops,
            "atlas": {"split": self.split, "seed": self.seed, "documents": self.documents},
        }
        return Draft(question, answers[0], data)

    def _answers(self, relation: Relation, value: int | str) -> list[str]:
        if isinstance(value, int):
            thing = self.things[value]
            return [thing.name, *thing.aliases]
        if relation.name == "length":
            return [value, f"{value} km", f"{value} kilometres", f"{value} kilometers"]
        if relation.name == "height":
            return [value, f"{value} m", f"{value} metres", f"{value} meters"]
        return [value]

    def _thing(self, kind: str, rng: random.Random, names: _Names) -> Thing:
        stem = names.new()
        name = stem
        aliases: tuple[str, ...] = ()
        if kind == "river":
            name, aliases = f"{stem} River", (stem, f"River {stem}")
        elif kind == "mountain":
            name, aliases = f"Mount {stem}", (stem,)
        elif kind == "company":
            name = rng.choice(_COMPANIES).format(n=stem)
        elif kind == "book":
            name = rng.choice(_BOOKS).format(n=stem)
        elif kind == "person":
            name = f"{stem} {names.new()}"
        thing = Thing(len(self.things), kind, name, aliases)
        self.things.append(thing)
        return thing

    def _fact(self, thing: Thing, relation: Relation, rng: random.Random, names: _Names) -> int | str:
        if relation.target is not None:
            others = self._by_kind[relation.target]
            if relation.name == "capital":  # no city is the capital of two countries
                return others[self._by_kind["country"].index(thing)].position
            while (other := rng.choice(others)) is thing:
                pass
            return other.position
        values: dict[str, Callable[[], str]] = {
            "language": names.new,
            "currency": lambda: names.new().lower(),
            "sea": lambda: f"{names.new()} Sea",
            "hero": names.new,
            "founded": lambda: str(rng.randint(1100, 1980)),
            "born": lambda: str(rng.randint(1900, 1999)),
            "population": lambda: str(rng.randint(10_000, 2_000_000)),
            "length": lambda: str(rng.randint(40, 2400)),
            "height": lambda: str(rng.randint(900, 7900)),
        }
        return values[relation.name]()

    def _document(self, thing: Thing, rng: random.Random) -> str:
        sentences = []
        for relation in RELATIONS[thing.kind]:
            value = thing.facts[relation.name]
            shown = self.things[value].name if isinstance(value, int) else value
            sentences.append(rng.choice(relation.say).format(x=thing.name, v=shown))
        rng.shuffle(sentences)
        return " ".join([_INTRODUCTIONS[thing.kind].format(x=thing.name), *sentences])

    def _id(self, thing: Thing) -> str:
        return f"atlas-{self.split}-{self.seed}-{thing.position}"


def _every_hop_needed(path: Sequence[Thing], answers: Sequence[str], question: str) -> bool:
    """Whether no document before the last has the answer, none names what only a later one should, nor the question."""
    shown = [question, *(thing.text for thing in path[:-1])]
    if any(answers[0].lower() in text.lower() for text in shown):
        return False
    return not any(later.name in thing.text for i, thing in enumerate(path) for later in path[i + 2 :])


class _Names:
    """Makes names up: capitalised words of two or three syllables that belong to one split and are not repeated."""

    def __init__(self, rng: random.Random, split: str) -> None:
        self._rng, self._split = rng, split
        self._taken: set[str] = set()

    def new(self) -> str:
        rng = self._rng
        while True:
            vowels = [rng.choice(_VOWELS) for _ in range(rng.choice((2, 2, 3)))]
            vowels[rng.randrange(len(vowels))] = rng.choice(_RARE)
            stem = "".join(rng.choice(_ONSETS) + vowel for vowel in vowels) + rng.choice(_CODAS)
            if 5 <= len(stem) <= 10 and stem not in self._taken and split_of_name(stem) == self._split:
                self._taken.add(stem)
                return stem.capitalize()


def split_of_name(name: str) -> str:
    """The split whose worlds may use ``name``."""
    return "test" if stable_hash("atlas name", name.lower()) % 2 else "train"


@lru_cache(maxsize=8)
def world(split: str, seed: int = 0, documents: int = DEFAULT_DOCUMENTS) -> World:
    """The world of these parameters; the last few are kept."""
    return World(split, seed, documents)


_retriever_lock = Lock()


def atlas_retriever(split: str, seed: int = 0, documents: int = DEFAULT_DOCUMENTS) -> Retriever:
    """BM25 over a world, in this process; the last few are kept."""
    with _retriever_lock:
        return _retriever(split, seed, documents)


@lru_cache(maxsize=8)
def _retriever(split: str, seed: int, documents: int) -> Retriever:
    from llm_envs.tools.retrieval.bm25 import BM25Retriever

    return BM25Retriever.from_passages(world(split, seed, documents).passages())


def _draw(rng: random.Random, *, split: str, world_seed: int, documents: int, hops: Sequence[int]) -> Draft:
    return world(split, world_seed, documents).draw(rng, rng.choice(hops))


def load_atlas(
    split: str | None = None,
    *,
    hops: int | Sequence[int] = DEFAULT_HOPS,
    documents: int = DEFAULT_DOCUMENTS,
    seed: int = 0,
    size: int | None = None,
    **options: Any,
) -> ProceduralTaskSet:
    """Returns questions about a world.

    Args:
        split: ``"train"`` (also for None) or ``"test"``.
        hops: How many documents a question takes: a number from 1 to 4, or several that are drawn from uniformly.
        documents: Size of the world, at least 100.
        seed: Another seed, another world (and never one of the other split).
        size: Number of tasks.
        **options: None are known; any is an error.

    Raises:
        TaskError: An argument is not valid.
    """
    reject_options("atlas", options, ("hops", "documents", "seed", "size"))
    split = check_split("atlas", split or "train")
    wanted = (hops,) if isinstance(hops, int) else tuple(hops)
    if not wanted or not all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= MAX_HOPS for n in wanted):
        raise TaskError(f"atlas: hops must be numbers from 1 to {MAX_HOPS}, got {hops!r}")
    if isinstance(documents, bool) or not isinstance(documents, int) or documents < MIN_DOCUMENTS:
        raise TaskError(f"atlas: documents must be a whole number of at least {MIN_DOCUMENTS}, got {documents!r}")
    return ProceduralTaskSet(
        "atlas",
        split,
        _draw,
        options={"split": split, "world_seed": seed, "documents": documents, "hops": wanted},
        size=size,
        seed=seed,
        version=VERSION,
    )
