"""From turns to samples to micro-batches.

A sample is one turn of one agent: prompt ids, completion ids, and an advantage. Micro-batches are packed by a budget
of padded tokens; nothing is ever duplicated or dropped to fill one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.packing import Ints, Row, lay_out

if TYPE_CHECKING:
    from trainers.algorithms.scores import FloatArray
    from trainers.rollout.records import Turn


@dataclass(frozen=True, slots=True)
class Sample:
    """One turn to train on.

    Attributes:
        prompt_ids: Token ids of the prompt, at least one.
        completion_ids: Token ids that were sampled, at least one, without padding.
        sampler_logprobs: Log-prob of each completion id when it was sampled, or None.
        advantage: One number for the turn, or one for each completion token.
        agent: Whose turn it is.
        weight: Factor of the turn in the loss.
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    sampler_logprobs: Sequence[float] | None
    advantage: float | Sequence[float]
    agent: str
    weight: float = 1.0

    def check(self, name: str) -> None:
        """Raise ValueError, with ``name`` in the message, if the sample cannot be trained on."""
        length = len(self.completion_ids)
        if not length:
            raise ValueError(f"{name} (agent {self.agent!r}) has no completion token; mask the turn instead")
        if not len(self.prompt_ids):
            raise ValueError(f"{name} (agent {self.agent!r}) has no prompt token; the first completion token needs one")
        if self.sampler_logprobs is not None and len(self.sampler_logprobs) != length:
            raise ValueError(f"{name} has {len(self.sampler_logprobs)} log-probs for {length} completion tokens")
        if not all(map(math.isfinite, self.sampler_logprobs or ())):
            raise ValueError(f"{name} (agent {self.agent!r}) has a sampler log-prob that is not finite")
        values = self.token_advantages()
        if len(values) != length:
            raise ValueError(f"{name} has {len(values)} advantages for {length} completion tokens")
        if not all(map(math.isfinite, values)):
            raise ValueError(f"{name} (agent {self.agent!r}) has an advantage that is not finite: {self.advantage}")
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise ValueError(f"{name} (agent {self.agent!r}) has weight {self.weight}; it must be finite and >= 0")

    def token_advantages(self) -> list[float]:
        """Return the advantage of every completion token."""
        if isinstance(self.advantage, (int, float)):
            return [float(self.advantage)] * len(self.completion_ids)
        return [float(value) for value in self.advantage]


def samples_by_policy(
    turns: Sequence[Turn],
    advantages: FloatArray,
    trained: Collection[str],
    kept: NDArray[np.bool_] | None = None,
) -> dict[str, list[Sample]]:
    """Sort the turns to train on by policy.

    Args:
        turns: N turns.
        advantages: Their advantages, shape [N].
        trained: Names of the policies that are trained. Turns of others (frozen, scripted, remote) are left out, and
            so are masked turns.
        kept: Which turns to train on, shape [N]; None is all.

    Returns:
        Samples of each trained policy in the order of the turns; an empty list if it did not act.

    Raises:
        ValueError: If lengths differ, or a turn of a trained policy has no token ids.
    """
    if len(turns) != len(advantages):
        raise ValueError(f"{len(advantages)} advantages for {len(turns)} turns")
    samples: dict[str, list[Sample]] = {name: [] for name in trained}
    for i, (turn, advantage) in enumerate(zip(turns, advantages, strict=True)):
        if turn.masked or turn.policy not in samples or (kept is not None and not kept[i]):
            continue
        if not turn.prompt_ids or not turn.completion_ids:
            raise ValueError(
                f"Turn {turn.index} ({turn.agent}) of episode {turn.episode!r} has no token ids, so policy "
                f"{turn.policy!r} cannot be trained on it. Sample with a policy that returns them, or mask the turn"
            )
        samples[turn.policy].append(
            Sample(turn.prompt_ids, turn.completion_ids, turn.logprobs, float(advantage), turn.agent)
        )
    return samples


def plan_micro_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Split items into micro-batches of at most ``max_tokens`` padded tokens (items × longest item).

    Longest first, so that items of like length share a batch and the first batch shows whether memory suffices.

    Args:
        lengths: Tokens of each item.
        max_tokens: The budget. An item above it is alone in its batch.

    Returns:
        Indices of the items of each batch; every item exactly once.

    Example:
        >>> plan_micro_batches([2, 9, 3, 3], 6)
        [[1], [2, 3], [0]]
    """
    batches: list[list[int]] = []
    room = 0
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not batches or len(batches[-1]) >= room:
            batches.append([])
            room = max(1, max_tokens // max(1, lengths[i]))
        batches[-1].append(i)
    return batches


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """S turns in B rows of T tokens, with M completion tokens in all.

    The last completion token is never an input, so a turn takes P + C − 1 positions. Turns may share tokens of a row;
    then a hidden state predicts the next token of several turns.

    Attributes:
        input_ids: Shape [B, T]; padding is id 0, on the right, and never attended to.
        positions: Position of each token in its turn, shape [B, T].
        attention_mask: Shape [B, T], 1 where there is a token; None where ``ends`` or causality say it.
        ends: Token i of a row sees token j if j ≤ i < ends[j], shape [B, T] (:mod:`trainers.packing`). None: all
            before it.
        rows: Rows of the U tokens whose hidden states predict a completion token. Shape [U].
        columns: Their columns.
        states: Which of them predicts each completion token, turn by turn, shape [M].
        targets: The completion ids, shape [M].
        segments: Index of the turn in this batch, shape [M].
        lengths: Completion tokens of each turn, S numbers.
    """

    input_ids: Tensor
    positions: Tensor
    attention_mask: Tensor | None
    ends: Tensor | None
    rows: Tensor
    columns: Tensor
    states: Tensor
    targets: Tensor
    segments: Tensor
    lengths: tuple[int, ...]

    @classmethod
    def of(
        cls,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        device: torch.device | str = "cpu",
    ) -> MicroBatch:
        """Pad turns into one batch on ``device``, a turn a row."""
        inputs = [model_inputs(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)]
        width = max(map(len, inputs))
        input_ids = np.zeros((len(inputs), width), dtype=np.int64)
        for row, ids in enumerate(inputs):
            input_ids[row, : len(ids)] = ids
        sizes = np.array([len(ids) for ids in inputs])
        columns = np.tile(np.arange(width), (len(inputs), 1))
        paths = [columns[0, : len(ids)] for ids in inputs]
        mask = (columns < sizes[:, None]).astype(np.int64)
        return cls._scored(input_ids, columns, mask, None, range(len(inputs)), paths, completions, device)

    @classmethod
    def sharing(
        cls,
        inputs: Sequence[Ints],
        completions: Sequence[Sequence[int]],
        rows: Sequence[Row],
        device: torch.device | str = "cpu",
    ) -> MicroBatch:
        """Lay turns out in rows of trees, each prefix that turns of a tree share once.

        Args:
            inputs: What is read of each turn (:func:`model_inputs`).
            completions: Completion of each turn.
            rows: Which turns are in which tree of which row, as :func:`trainers.packing.plan_trees` says. The turns of
                the batch are in this order.
            device: Where the batch is to be.
        """
        layout = lay_out(inputs, rows)
        chosen = [completions[i] for row in rows for tree in row for i in tree.members]
        return cls._scored(
            layout.input_ids, layout.positions, None, layout.ends, layout.rows, layout.paths, chosen, device
        )

    @classmethod
    def _scored(
        cls,
        input_ids: Ints,
        positions: Ints,
        mask: Ints | None,
        ends: Ints | None,
        rows: Iterable[int],
        paths: Sequence[Ints],
        completions: Sequence[Sequence[int]],
        device: torch.device | str,
    ) -> MicroBatch:
        """Add which tokens predict what: the last C of the columns that each turn takes."""
        width = input_ids.shape[1]
        lengths = tuple(map(len, completions))
        places = [
            row * width + path[len(path) - length :] for row, path, length in zip(rows, paths, lengths, strict=True)
        ]
        scored, states = np.unique(np.concatenate(places), return_inverse=True)

        def on_device(values: Ints) -> Tensor:
            return torch.from_numpy(values).to(device)

        return cls(
            input_ids=on_device(input_ids),
            positions=on_device(positions),
            attention_mask=None if mask is None else on_device(mask),
            ends=None if ends is None else on_device(ends),
            rows=on_device(scored // width),
            columns=on_device(scored % width),
            states=on_device(states),
            targets=on_device(np.concatenate([np.asarray(ids, dtype=np.int64) for ids in completions])),
            segments=on_device(np.repeat(np.arange(len(lengths)), lengths)),
            lengths=lengths,
        )


def model_inputs(prompt: Sequence[int], completion: Sequence[int]) -> Ints:
    """Return what a model reads of a turn: all but the last token, which is only predicted."""
    return np.array([*prompt, *completion[:-1]], dtype=np.int64)
