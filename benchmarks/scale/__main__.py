"""Simulate three designs of a run on up to 1,000 devices and write the page about it.

    python -m benchmarks.scale --out docs/scale.json                    (minutes; then docs/scale.md and docs/scale.png)
    python -m benchmarks.scale --devices 8 64 --out runs/scale.json     (fewer)
    python -m benchmarks.scale --episodes runs/mine --out …             (lengths of a run of llm-bench)
    python -m benchmarks.scale --record runs/mine --source TEXT         (make them the ones that ship)

GPUs were not measured: their times are the roofline of ``llm-train plan``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.context import describe_machine, describe_source
from benchmarks.scale.designs import DESIGNS, Setting, knee, row, run_design
from benchmarks.scale.lengths import DEFAULT, Recorded, load, record
from benchmarks.scale.page import page, plot
from benchmarks.scale.validate import validate
from trainers.capacity.devices import assumptions, known_devices
from trainers.recipe_files import ConfigError

__all__ = ["main", "sweep"]

DEVICES = (8, 32, 128, 512, 1000)
BATCH = 2048
EACH = 100
COMPLETION, PROMPT = 1024.0, 768.0
SIGMA = 1.0
"""Spread of the log-normal factor where long tails are assumed."""


def sweep(
    lengths: Recorded, tails: Recorded, setting: Setting, devices: Sequence[int], batch: int, each: int
) -> dict[str, list[dict[str, Any]]]:
    """Simulate every design on every number of devices.

    Args:
        lengths: Episodes to draw from.
        tails: The same with long tails.
        setting: All that is assumed.
        devices: Numbers of devices.
        batch: Episodes of a batch where it is the same for all numbers of devices.
        each: Episodes a device where the batch grows with them; of every other number of devices.

    Returns:
        Rows by ``fixed`` (the same batch), ``tails`` (the same with long tails) and ``growing``.
    """
    found: dict[str, list[dict[str, Any]]] = {"fixed": [], "tails": [], "growing": []}
    for design in DESIGNS:
        for place, count in enumerate(devices):
            cases = [("fixed", batch, lengths), ("tails", batch, tails)]
            cases += [("growing", each * count, lengths)] if place % 2 == 0 else []
            for kind, episodes, drawn in cases:
                started = time.process_time()
                report = run_design(design, count, episodes, drawn, setting)
                found[kind].append(row(design, count, episodes, report))
                sys.stderr.write(
                    f"{design}, {count} devices, {episodes:,} episodes, {kind}: {report.tokens_per_s:,.0f} tokens/s, "
                    f"{report.bottleneck}; {time.process_time() - started:.1f} s\n"
                )
    return found


def _knees(rows: Sequence[dict[str, Any]]) -> dict[str, int | None]:
    return {
        design: knee({r["devices"]: r["tokens_per_s"] for r in rows if r["design"] == design}) for design in DESIGNS
    }


def _record(folder: Path, source: str | None) -> int:
    if source is None:
        sys.stderr.write("python -m benchmarks.scale: --record needs --source, the command of the run in words\n")
        return 2
    DEFAULT.write_text(json.dumps(record(folder, source).to_dict(), separators=(",", ":")) + "\n", encoding="utf-8")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate and write; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/scale.json"), help="default: %(default)s")
    parser.add_argument("--devices", type=int, nargs="+", default=list(DEVICES), help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=BATCH, help="episodes of the fixed batch (default: %(default)s)")
    parser.add_argument("--each", type=int, default=EACH, help="episodes a device, growing (default: %(default)s)")
    parser.add_argument("--completion", type=float, default=COMPLETION, help="mean tokens of an answer (%(default)s)")
    parser.add_argument("--prompt", type=float, default=PROMPT, help="mean tokens of a prompt (default: %(default)s)")
    parser.add_argument("--model", default=Setting().model, help="default: Qwen/Qwen3-4B")
    parser.add_argument("--device", default=Setting().device, help="default: H100")
    parser.add_argument("--episodes", type=Path, metavar="DIR", help="a folder of llm-bench run")
    parser.add_argument("--record", type=Path, metavar="DIR", help="make the lengths of a run those that ship")
    parser.add_argument("--source", metavar="TEXT", help="with --record: the command of that run")
    parser.add_argument("--no-validation", action="store_true", help="do not play and learn on the CPU for comparison")
    options = parser.parse_args(argv)
    try:
        if options.record is not None:
            return _record(options.record, options.source)
        recorded = load() if options.episodes is None else record(options.episodes, str(options.episodes))
        setting = Setting(model=options.model, device=options.device)
        lengths = recorded.stretched(options.completion, options.prompt)
        started = time.process_time()
        tails = recorded.stretched(options.completion, options.prompt, SIGMA)
        found = sweep(lengths, tails, setting, options.devices, options.batch, options.each)
        seconds = time.process_time() - started
    except (ConfigError, ValueError) as problem:
        sys.stderr.write(f"python -m benchmarks.scale: {problem}\n")
        return 2
    turns = [turn for episode in recorded.episodes for turn in episode]
    longest = max(turn.completion for turn in turns)
    report = {
        "command": " ".join(["python -m benchmarks.scale", *(sys.argv[1:] if argv is None else argv)]),
        "machine": describe_machine(),
        "source": describe_source(),
        "simulation_cpu_s": round(seconds, 1),
        "setting": asdict(setting),
        "device": asdict(known_devices()[setting.device]),
        "assumptions": assumptions(),
        "lengths": {
            "source": recorded.source,
            "episodes": len(recorded.episodes),
            "turns_an_episode": round(len(turns) / len(recorded.episodes), 2),
            "prompt": round(sum(t.prompt for t in turns) / len(turns), 1),
            "completion": round(sum(t.completion for t in turns) / len(turns), 1),
            "env_s": round(sum(t.env_s for t in turns) / len(turns), 4),
            "stretched_to": {"prompt": options.prompt, "completion": options.completion},
            "sigma": SIGMA,
            "longest_share": round(sum(t.completion == longest for t in turns) / len(turns), 2),
        },
        "validation": [] if options.no_validation else [validate()],
        "knees": {kind: _knees(rows) for kind, rows in found.items()},
        **found,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    plot(report, options.out.with_suffix(".png"))
    options.out.with_suffix(".md").write_text(page(report, options.out.stem), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
