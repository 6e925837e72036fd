"""How a run is divided over a cluster: how many workers of each kind, and what each of them holds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trainers.config_checks import Section

__all__ = ["ClusterConfig"]


class ClusterConfig(Section):
    """Workers of a run on a cluster. Without effect where the run is in one process.

    Attributes:
        runners: Processes that play episodes.
        engines: Copies of each sampler (policies whose adapters share an engine count as one); ``auto`` divides
            ``engine_pool`` among them by the load that they are measured to have.
        engine_pool: Engines in all, with ``engines: auto``.
        balance_every: With ``auto``: updates that are measured before engines may change hands.
        balance_gain: With ``auto``: share of the predicted seconds of a rollout that a change must save.
        learner_ranks: Processes over which the weights and moments of each policy that learns are divided.
        runner_cpus: CPUs that a runner holds.
        engine_cpus: CPUs that an engine holds.
        engine_gpus: GPUs that an engine holds.
        learner_cpus: CPUs that a learner rank holds.
        learner_gpus: GPUs that a learner rank holds.
        spread: ``pack`` puts the workers on as few nodes as hold them, ``spread`` on as many as there are.
        attempts: How often one job, request or update may be given out before the run gives up, because every worker
            that had it died.
        start_timeout: Seconds until all workers must have been placed.
    """

    runners: int = Field(1, ge=1)
    engines: Literal["auto"] | Annotated[int, Field(ge=1)] = 1
    engine_pool: int | None = Field(None, ge=1)
    balance_every: int = Field(5, ge=1)
    balance_gain: float = Field(0.1, ge=0, lt=1)
    learner_ranks: int = Field(1, ge=1)
    runner_cpus: float = Field(1.0, gt=0)
    engine_cpus: float = Field(1.0, gt=0)
    engine_gpus: int = Field(0, ge=0)
    learner_cpus: float = Field(1.0, gt=0)
    learner_gpus: int = Field(0, ge=0)
    spread: Literal["pack", "spread"] = "pack"
    attempts: int = Field(5, ge=1)
    start_timeout: float = Field(300.0, gt=0)

    @model_validator(mode="after")
    def _check(self) -> ClusterConfig:
        if self.engines == "auto" and self.engine_pool is None:
            raise ValueError("engine_pool is missing: with `engines: auto` it says how many there are in all")
        for name in ("engine_pool", "balance_every", "balance_gain"):
            if self.engines != "auto" and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} has no effect with `engines: {self.engines}`: write `engines: auto`")
        return self
