"""Devices and pools of them: ``8xH100``, ``4xH100+4xL40S``, ``cpu``."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from trainers.recipe_files import ConfigError

__all__ = ["GIB", "Device", "Pool", "assumptions", "known_devices", "parse_pools"]

GIB = 2**30
_POOL = re.compile(r"(?:(\d+)x)?([A-Za-z][\w-]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Device:
    """What is published of a device; of the CPU of this machine only its memory, since its speed is measured.

    Attributes:
        name: As it is written in a pool.
        memory: Bytes.
        flops: Peak FLOP/s of bfloat16 products, dense; 0 of a CPU.
        bandwidth: Peak bytes/s of its memory; 0 of a CPU.
        link: Peak bytes/s to another device, in one direction.
        host_link: Peak bytes/s to the host's memory, in one direction.
        source: Where this is published.
    """

    name: str
    memory: float
    flops: float
    bandwidth: float
    link: float
    host_link: float
    source: str

    @property
    def gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.flops > 0


@dataclass(frozen=True, slots=True)
class Pool:
    """Devices of one kind."""

    count: int
    device: Device

    def __str__(self) -> str:
        return f"{self.count}x{self.device.name}" if self.device.gpu else self.device.name


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "devices.yaml").read_text(encoding="utf-8"))
    return table


def assumptions() -> dict[str, float]:
    """What is assumed of GPUs and was not measured by us."""
    return {name: float(value) for name, value in _table()["assumptions"].items()}


@cache
def known_devices() -> dict[str, Device]:
    """The GPUs in the table, by name."""
    return {
        name: Device(
            name=name,
            memory=row["memory_gb"] * 1e9,
            flops=row["tflops"] * 1e12,
            bandwidth=row["memory_gb_s"] * 1e9,
            link=row["link_gb_s"] * 1e9,
            host_link=row["host_gb_s"] * 1e9,
            source=row["source"],
        )
        for name, row in _table()["devices"].items()
    }


def _cpu() -> Device:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Device("cpu", float(memory), 0.0, 0.0, 0.0, 0.0, "this machine")


def parse_pools(text: str) -> tuple[Pool, ...]:
    """Read pools of devices.

    >>> [str(pool) for pool in parse_pools("4xH100+2xL40S")]
    ['4xH100', '2xL40S']

    Raises:
        ConfigError: A device is not known, a number is 0, or the CPU is named together with others.
    """
    pools = []
    table = {name.lower(): device for name, device in known_devices().items()}
    for part in text.split("+"):
        match = _POOL.fullmatch(part.strip())
        if match is None:
            raise ConfigError(f"devices: {part!r} is not of the form 8xH100; several pools are joined by +")
        count, name = int(match[1] or 1), match[2].lower()
        if name == "cpu":
            if text.strip().lower() not in ("cpu", "1xcpu"):
                raise ConfigError(f"devices: {text!r}: `cpu` is this machine, once and without other devices")
            return (Pool(1, _cpu()),)
        if name not in table:
            close = difflib.get_close_matches(name, table, n=1, cutoff=0.4)
            hint = f" Did you mean {table[close[0]].name!r}?" if close else ""
            raise ConfigError(
                f"devices: {match[2]!r} is not known; there are {', '.join(known_devices())} and cpu.{hint}"
            )
        if count < 1:
            raise ConfigError(f"devices: {part!r} has no device; write a number of at least 1")
        pools.append(Pool(count, table[name]))
    return tuple(pools)
