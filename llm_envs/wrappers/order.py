"""Refuse calls that come out of order."""

from __future__ import annotations

from pettingzoo.utils.wrappers import OrderEnforcingWrapper


class OrderEnforcing(OrderEnforcingWrapper):
    """PettingZoo's ``OrderEnforcingWrapper``: an error for calls before ``reset``, for ``agent_iter`` without ``step``.

    The only one of PettingZoo's classic wrappers that suits text: the others check arrays and discrete actions.
    """
