"""The devices of a run in one process whose engines have their own (``serving.mode: split``)."""

from __future__ import annotations

from trainers.config import ConfigError, TrainConfig
from trainers.policies.devices import present

__all__ = ["bind_learners", "left_for_learners"]


def left_for_learners(config: TrainConfig) -> list[int]:
    """The devices that no engine has.

    Raises:
        ConfigError: An engine is given one that is not there, or none is left.
    """
    there = present()
    given = {number: name for name, numbers in config.serving.devices.items() for number in numbers}
    for number, name in given.items():
        if number not in there:
            raise ConfigError(f"serving.devices.{name} names device {number}, and this process has {there}")
    left = [number for number in there if number not in given]
    if not left:
        raise ConfigError(f"serving.devices gives engines all of {there}: leave one to the learners")
    return left


def bind_learners(config: TrainConfig) -> None:
    """Let learners compute on what engines leave them: the first such GPU, or a thread for each such core.

    ``threads`` is heeded where it is set.

    Raises:
        ConfigError: See :func:`left_for_learners`.
    """
    import torch

    left = left_for_learners(config)
    if torch.cuda.is_available():
        torch.cuda.set_device(left[0])
    elif config.threads is None:
        torch.set_num_threads(len(left))
