"""Policies that several runs share, so that a model is loaded once for all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from trainers.policies.base import Completion, Policy, Request, make_policy

if TYPE_CHECKING:
    from llm_envs.core import TextEnv

__all__ = ["SharedPolicies"]


class SharedPolicies:
    """Makes each policy once, and keeps it until all runs are over. Use it as an asynchronous context manager.

    All runs must be played in one event loop.

    Args:
        make: Turns a spec and its options into a policy.
    """

    def __init__(self, make: Callable[..., Policy] = make_policy) -> None:
        self._make = make
        self._policies: dict[tuple[str, str], Policy] = {}

    def make(self, spec: str, **options: Any) -> Policy:
        """Return the policy of a spec and its options; closing it has no effect."""
        key = (spec, json.dumps(options, sort_keys=True))
        if key not in self._policies:
            self._policies[key] = self._make(spec, **options)
        return _Lent(self._policies[key])

    async def keep(self, specs: Collection[str]) -> None:
        """Close the policies of all other specs: no run that is still to come plays them."""
        for key in [key for key in self._policies if key[0] not in specs]:
            await self._policies.pop(key).close()

    async def __aenter__(self) -> SharedPolicies:
        return self

    async def __aexit__(self, *_: object) -> None:
        policies, self._policies = self._policies, {}
        for policy in policies.values():
            await policy.close()


class _Lent(Policy):
    """A policy that others use too: it is not closed with the run."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy.name, policy.label)
        self._policy = policy
        self.weight_version = policy.weight_version

    async def generate(self, request: Request) -> list[Completion]:
        return await self._policy.generate(request)

    def check(self, env: TextEnv) -> None:
        self._policy.check(env)

    def join(self) -> None:
        self._policy.join()

    def leave(self) -> None:
        self._policy.leave()
