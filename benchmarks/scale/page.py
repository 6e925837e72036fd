"""The page and the plot about a sweep, made of its JSON alone.

python -m benchmarks.scale.page docs/scale.json
python -m benchmarks.scale.page docs/scale.json --validation FILE    (add what benchmarks.scale.validate found)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale.designs import DESIGNS
from benchmarks.scale.validate import describe

__all__ = ["main", "page", "plot"]

Report = Mapping[str, Any]


_KINDS = (("fixed", "Fixed batch"), ("tails", "Fixed batch, long tails"), ("growing", "Growing batch"))


def plot(report: Report, path: Path) -> None:
    """Draw tokens a second over devices, with the batch fixed and growing."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True)
    titles = {
        "fixed": f"{_fixed(report):,} episodes a batch",
        "tails": "the same, long tails assumed",
        "growing": f"{_each(report):,.0f} episodes a device",
    }
    for axis, (kind, title) in zip(axes, titles.items(), strict=True):
        for design in DESIGNS:
            rows = [row for row in report[kind] if row["design"] == design]
            axis.plot([row["devices"] for row in rows], [row["tokens_per_s"] for row in rows], marker="o", label=design)
            limit = report["knees"][kind][design]
            for row in rows:
                if row["devices"] == limit:
                    axis.plot(limit, row["tokens_per_s"], marker="o", markersize=12, fillstyle="none", color="black")
        axis.set(xscale="log", yscale="log", xlabel=f"{report['device']['name']} devices", title=title)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("completion tokens a second")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _fixed(report: Report) -> int:
    return int(report["fixed"][0]["episodes"])


def _each(report: Report) -> float:
    return float(report["growing"][0]["episodes"] / report["growing"][0]["devices"])


def page(report: Report, name: str) -> str:
    """The page in Markdown.

    Args:
        report: What the sweep wrote.
        name: Name of its files without an ending.
    """
    setting = report["setting"]
    parts = [
        "# Scale",
        (
            "How far would a run scale? A discrete-event simulation plays its flow of data: runners ask engines for "
            "answers, engines batch them continuously, learners learn from whole batches, weights go back. **Nothing "
            "here was measured on GPUs.** Times of GPUs are a roofline, published peaks times assumed shares; lengths "
            "and turns are measured, then stretched; what the simulation does with them is checked against closed "
            "forms and a real run on a CPU, below."
        ),
        f"![Tokens a second over devices]({name}.png)",
        "A ring marks the knee: the most devices at which each still does half of what it does at best.",
        _saturation(report),
        "## The three designs",
        (
            "| design | what |\n|---|---|\n"
            "| `colocated` | all devices collect, then all learn; engines sleep meanwhile |\n"
            f"| `split` | {setting['learner_share']:.0%} of the devices learn, the others collect, in turn |\n"
            "| `overlapped` | the same split, both at once: a batch is learned from while the next one is collected, "
            "so it is one update old |"
        ),
        f"## {_fixed(report):,} episodes a batch",
        _table(report["fixed"]),
        "## The same with long tails",
        (
            f"The run that lengths are from cuts answers, and {report['lengths']['longest_share']:.0%} of them are as "
            "long as they may be. Here every answer is multiplied by a log-normal factor of mean 1 and σ = "
            f"{report['lengths']['sigma']:g}: an assumption, to show what waiting for the longest costs."
        ),
        _table(report["tails"]),
        f"## {_each(report):,.0f} episodes a device",
        _table(report["growing"]),
        (
            "`engine` and `runner` are the shares of the rollout in which they are busy, `rows` the sequences in a "
            "batch of an engine, `tail` the part of the rollout in which less than a tenth of the episodes is left. "
            "What holds a step up is the longest of rollout, update and sync; of a rollout it is `stragglers` where "
            "the tail is more than half of it, else the busier of `engines` and `runners`. All episodes of a batch "
            "are in flight at once. Rollouts of `overlapped` are means of two batches, its steps are of the second."
        ),
        "## What is assumed",
        _assumed(report),
        "## Checks",
        (
            "Tests hold the simulation to what is known exactly: equal answers on one engine end at the sum of their "
            "steps, to rounding; a queue in front of an engine of one sequence waits as an M/D/1 queue does; Little's "
            "law holds for any arrivals; no engine is busy for longer than the simulation lasts; one event for many "
            "steps gives what step after step gives."
        ),
        (
            "And beside a real rollout and update of a tiny model on a CPU (`hf` back end, `math-2agent`, two agents), "
            "in seconds of processor time of one thread. The simulation is given the lengths of the episodes and the "
            "[points](capacity.md#a-cpu) that were measured before, nothing else of the run:"
        )
        if report["validation"]
        else "",
        describe(report["validation"]) if report["validation"] else "",
        _agreement(report["validation"]) if report["validation"] else "",
        "## Repeat it",
        (
            f"<!-- no-run: takes minutes -->\n```console\n$ {report['command']}\n"
            "$ python -m benchmarks.scale.validate --out validation.json\n"
            f"$ python -m benchmarks.scale.page docs/{name}.json --validation validation.json\n```\n\n"
            f"The simulations took {report['simulation_cpu_s']:.0f} s of processor time on {report['machine']}. "
            "`--episodes DIR` takes the lengths of a run of `llm-bench` instead, `--device`, `--model`, `--devices`, "
            f"`--prompt` and `--completion` change the rest. [{name}.json]({name}.json) has all numbers."
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _saturation(report: Report) -> str:
    lines = []
    for kind, what in _KINDS:
        for design in DESIGNS:
            rows = [row for row in report[kind] if row["design"] == design]
            limit, last = report["knees"][kind][design], rows[-1]
            first = rows[0]
            gain = last["tokens_per_s"] / first["tokens_per_s"]
            factor = last["devices"] / first["devices"]
            until = f"its knee is at {limit:,} devices" if limit else f"no knee up to {last['devices']:,} devices"
            held = ", then ".join(dict.fromkeys(row["bottleneck"] for row in rows))
            lines.append(
                f"- {what}, `{design}`: {until}; {factor:.0f} times the devices give {gain:.1f} times the tokens. "
                f"What holds it up: {held}."
            )
    return "\n".join(lines)


def _agreement(found: Sequence[Report]) -> str:
    shares = [row[part]["simulated"] / row[part]["measured"] for row in found for part in ("rollout_s", "update_s")]
    return (
        f"Simulated over measured: {min(shares):.2f} to {max(shares):.2f}. Parsing, grading and the runner, which are "
        "measured too, are not in the simulation; and the fitted lines miss their own points by up to a third."
    )


def _table(rows: Sequence[Report]) -> str:
    lines = [
        "| design | devices | step | rollout | update | sync | tail | tokens/s | engine | rows | runner | held up by |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{r['design']}` | {r['devices']:,} | {r['seconds']:,.1f} s | {r['rollout_s']:,.1f} s "
        f"| {r['update_s']:,.1f} s | {r['sync_s']:,.2f} s | {r['tail_s']:,.1f} s | {r['tokens_per_s']:,.0f} "
        f"| {r['engine_busy']:.0%} | "
        f"{r['engine_rows']:.0f} | {r['runner_busy']:.1%} | {r['bottleneck']} |"
        for r in rows
    ]
    return "\n".join(lines)


def _assumed(report: Report) -> str:
    setting, lengths, device, share = (report[name] for name in ("setting", "lengths", "device", "assumptions"))
    stretched = lengths["stretched_to"]
    return "\n".join(
        [
            (
                f"- **Lengths.** {lengths['episodes']} episodes of {lengths['source']}: "
                f"{lengths['turns_an_episode']} turns an episode, {lengths['prompt']} + {lengths['completion']} tokens "
                f"a turn, {lengths['env_s']} s of the environment. Small models answer briefly, so lengths are "
                f"multiplied until their means are {stretched['prompt']:,.0f} + {stretched['completion']:,.0f} tokens, "
                "which is an assumption; turns, seconds of the environment and the shape of the distributions are kept."
            ),
            (
                f"- **Device.** {device['name']}: {device['flops'] / 1e12:.0f} TFLOP/s, "
                f"{device['bandwidth'] / 1e12:.2f} TB/s, {device['memory'] / 1e9:.0f} GB ({device['source']}). "
                f"Of these peaks learners reach {share['update_flops']:.0%} of the FLOP/s, prefill "
                f"{share['prefill_flops']:.0%}, decoding {share['decode_bandwidth']:.0%} of the bandwidth. "
                "Assumed, not measured by us."
            ),
            (
                f"- **Network.** {share['machine_devices']:.0f} devices a machine, {share['network_gb_s']:.0f} GB/s of "
                f"each device to others, {share['link_bandwidth']:.0%} of it reached; weights are broadcast in a "
                "pipeline, so that the number of engines does not count. Latencies of collectives are left out."
            ),
            (
                f"- **Policy.** One, {setting['model']}, all weights trained, plays all agents. Learners shard over "
                f"all of theirs, with {setting['micro_batch_tokens']:,} tokens a forward pass and gradient "
                "checkpointing; no prefix is shared in an update."
            ),
            (
                f"- **Engines.** One device each, at most {setting['max_sequences']} sequences, and as many as fit in "
                "the cache at their final length. Prompts are read at once, between two steps of decoding. An episode "
                "stays with its engine, which still has the tokens of the agent's last turn."
            ),
            f"- **Runners.** {setting['cores_per_device']} cores a device, without overhead of their own.",
            "- Nothing fails, and no device is slower than another.",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write page and plot beside the JSON; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.page", description=__doc__)
    parser.add_argument("report", type=Path, help="what `python -m benchmarks.scale --out` wrote")
    parser.add_argument("--validation", type=Path, help="what `python -m benchmarks.scale.validate --out` wrote")
    options = parser.parse_args(argv)
    report = json.loads(options.report.read_text(encoding="utf-8"))
    if options.validation is not None:
        report["validation"] = json.loads(options.validation.read_text(encoding="utf-8"))
        options.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    plot(report, options.report.with_suffix(".png"))
    options.report.with_suffix(".md").write_text(page(report, options.report.stem), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
