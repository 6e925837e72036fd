"""Study: what do the agent-wise statistics of Dr. MAS change, and where do everybody's statistics break?

Dr. MAS (arXiv 2602.08847) normalises the rewards of every agent by its own mean and deviation. It claims that the
statistics of all agents together multiply the second moment of an agent's gradient by (σ_k² + (μ_k − μ)²)/σ² (Lemma
4.2), that this shows as spikes of the gradient norm, up to NaN in search, and that agent-wise statistics remove them
and bring +5.6 % (avg@16, math) and +15.2 % (avg@16, search), relative averages. Here a model of a tenth of a million
parameters searches with a router (:mod:`benchmarks.studies.dr_mas_search`), at a size that a laptop holds.

Decided before anything was run: the grid (:data:`benchmarks.studies.dr_mas_arms.REGIMES`), the arms, three paired
seeds, and what is measured of a run:

* *success*: of the final policies, sampled, one episode on each of 400 held-out tasks;
* *spike ratio* of an agent: the largest of its gradient norms before clipping over their median; of a run: the largest
  of its agents';
* *collapse*: the run stopped on a gradient that is not finite, or its success is below half of its best mean over five
  updates of training.

    python -m benchmarks.studies.dr_mas_cells --out runs/dr_mas_cells

The run can be stopped and started again: what is done is kept.
"""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llm_envs
from benchmarks.studies.dr_mas_arms import ARMS, MAX_TOKENS, REGIMES, ROLES, Regime, StudySettings, train_config
from benchmarks.studies.dr_mas_lemma import measure_lemma
from benchmarks.studies.dr_mas_report import gather, write_page, write_plot
from benchmarks.studies.dr_mas_search import SEARCH, CrewPolicy, register
from benchmarks.studies.held_out import evaluate
from benchmarks.studies.study_cli import Log, add_choice, run_command, study_parser
from benchmarks.studies.study_folder import same_study, write_json
from trainers.env_texts import env_texts
from trainers.learner import NonFiniteGradient
from trainers.models import build_tiny_model
from trainers.policies.base import Sampling
from trainers.rollout.episodes import collect, make_jobs
from trainers.sft import SFTConfig, sft
from trainers.team import Team
from trainers.tracking import read_metrics
from trainers.trainer import Trainer

__all__ = ["main", "run_study"]

LEMMA_FILE = "lemma.json"
WARM_FILE = "warm.json"
TOKENIZER_TASKS = 200
MAX_LENGTH = 128


def run_study(
    settings: StudySettings,
    out: Path,
    seeds: Sequence[int],
    regimes: Sequence[str],
    *,
    machine: str = "",
    seconds: float = math.inf,
    log: Log = lambda line: None,
) -> Path:
    """Run what is missing of the study, and write its report.

    Args:
        settings: What is the same in all runs.
        out: The folder.
        seeds: Seeds of tasks and sampling. There is one warm start, so all runs begin alike.
        regimes: Names of :data:`benchmarks.studies.dr_mas_arms.REGIMES`.
        machine: What it ran on, in words.
        seconds: Begin no further run after so many; the report then holds what there is.
        log: Is told what happens.

    Returns:
        The report, ``report.json``; the page and the plot are beside it.

    Raises:
        ValueError: The folder holds a study of other settings.
    """
    started = time.monotonic()
    register()
    same_study(settings, out)
    warm = _warm_start(settings, out, log)
    if not (out / LEMMA_FILE).is_file():
        write_json(out / LEMMA_FILE, measure_lemma(warm, settings))
    for regime in regimes:
        for seed in seeds:
            for arm in REGIMES[regime].arms():
                if time.monotonic() - started < seconds:
                    _run(regime, arm, seed, settings, warm, out / "runs" / regime / arm / f"seed{seed}", log)
    report = out / "report.json"
    found = gather(out, settings, machine)
    report.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_page(report)
    write_plot(report)
    return report


def _run(regime_name: str, arm: str, seed: int, settings: StudySettings, warm: Path, folder: Path, log: Log) -> None:
    """Train and evaluate an arm; nothing if that is done. A run that was interrupted begins again."""
    if (folder / "result.json").is_file():
        return
    regime = REGIMES[regime_name]
    train = folder / "train"
    shutil.rmtree(folder, ignore_errors=True)
    clock = time.process_time()
    trainer = Trainer(train_config(ARMS[arm], regime, settings, warm, seed), train)
    stopped = None
    try:
        asyncio.run(trainer.run())
    except NonFiniteGradient as problem:
        stopped = str(problem)
    result = {"regime": regime_name, "arm": arm, "seed": seed, "stopped": stopped, **_training(train)}
    result["held_out"] = None if stopped else _evaluate(regime, settings, _models(regime, train / "models"), seed)
    result["seconds"] = time.process_time() - clock
    write_json(folder / "result.json", result)
    shutil.rmtree(train)
    success = 0.0 if stopped else result["held_out"]["success"]
    log(f"{regime_name}, {arm}, seed {seed}: success {success:.3f}, {result['seconds']:.1f} s of the processor")


def _training(folder: Path) -> dict[str, Any]:
    """What a training run has logged. An update without signal for an agent has a gradient of 0."""
    rows = [row for row in read_metrics(folder) if "train/success" in row]
    agents = [f"{role}_0" for role in ROLES]

    def column(agent: str, name: str, otherwise: float | None = None) -> list[float | None]:
        return [row.get(f"agent/{agent}/{name}", otherwise) for row in rows]

    return {
        "success": [row["train/success"] for row in rows],
        "norms": {agent: column(agent, "grad_norm_max", 0.0) for agent in agents},
        "turns": {agent: column(agent, "turns", 0.0) for agent in agents},
        "inflation": {agent: column(agent, "inflation") for agent in agents},
        "entropy": {agent: column(agent, "entropy") for agent in agents},
    }


def _evaluate(regime: Regime, settings: StudySettings, models: dict[str, Path], seed: int) -> dict[str, Any]:
    sampling = Sampling(temperature=1.0, max_tokens=MAX_TOKENS)
    tasks = settings.eval_tasks
    return asyncio.run(evaluate(SEARCH, regime.env_kwargs(), models, sampling, tasks=tasks, seed=seed))


def _models(regime: Regime, folder: Path) -> dict[str, Path]:
    return {"*": folder / "all"} if regime.shared else {role: folder / role for role in ROLES}


def _warm_start(settings: StudySettings, out: Path, log: Log) -> Path:
    """The model that all policies start from, learned from all roles of the crew; its success is noted."""
    folder = out / "models" / "warm"
    base = out / "models" / "random"
    if (out / WARM_FILE).is_file():
        return folder
    shutil.rmtree(out / "models", ignore_errors=True)  # what an interrupted warm start has left
    widest = {"min_links": 2, "max_links": 6}
    build_tiny_model(
        base,
        texts=env_texts(SEARCH, tasks=TOKENIZER_TASKS, task_options=widest),
        hidden_size=settings.hidden,
        layers=settings.layers,
        intermediate_size=2 * settings.hidden,
        max_length=MAX_LENGTH,
        init_std=settings.init_std,
    )
    env: Any = llm_envs.make(SEARCH, split="train", order_enforcing=False, task_options=widest).unwrapped
    tasks = range(len(env.tasks) - settings.demo_tasks, len(env.tasks))
    jobs = make_jobs(tasks, 1, 0)
    episodes = asyncio.run(collect(env.fork, Team.single(CrewPolicy(settings.skill)), jobs, concurrency=16))
    demonstrations = out / "models" / "demonstrations.jsonl"
    demonstrations.write_text("".join(episode.to_json(tokens=False, timings=False) + "\n" for episode in episodes))
    config = SFTConfig(
        [demonstrations],
        base,
        folder,
        all_episodes=True,
        epochs=settings.sft_epochs,
        learning_rate=settings.sft_learning_rate,
        batch=128,
        micro_batch_tokens=16384,
        threads=1,
    )
    found = sft(config)
    success = {}
    for links in sorted({regime.links for regime in REGIMES.values()}):
        held_out = _evaluate(Regime("", links=links), settings, {"*": folder}, 0)
        success[f"{links[0]}-{links[1]}"] = held_out["success"]
    log(f"warm start: {found.turns} turns, held-out loss {found.held_out_loss} nats a token, success {success}")
    write_json(out / WARM_FILE, {"turns": found.turns, "held_out_loss": found.held_out_loss, "success": success})
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = study_parser("dr_mas_cells", __doc__)
    add_choice(parser, "--regimes", REGIMES)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no further run after so many")
    parser.add_argument("--machine", default="", help="what it runs on, in words, for the page")
    parser.add_argument("--page", type=Path, metavar="JSON", help="run nothing: write the page of this report again")
    given = parser.parse_args(argv)
    if given.page is not None:
        write_page(given.page)
        return 0

    def run(log: Log) -> str:
        report = run_study(
            StudySettings(),
            given.out,
            range(given.seeds),
            given.regimes,
            machine=given.machine,
            seconds=60 * given.minutes,
            log=log,
        )
        return report.with_suffix(".md").read_text(encoding="utf-8")

    return run_command(parser, run)


if __name__ == "__main__":
    sys.exit(main())
