"""Two gloo ranks of a learner or a critic against one process: the same norms and weights; states that re-shard."""

from __future__ import annotations

import multiprocessing
import pickle
import traceback
import warnings

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from trainers.algorithms.critic_config import CriticConfig
from trainers.algorithms.loss_config import LossConfig
from trainers.batching import Sample
from trainers.critic import Critic
from trainers.distributed.sharded_state import read_whole, write
from trainers.learner import Learner, NonFiniteGradient
from trainers.learner_config import LearnerConfig

VOCABULARY = 37
LORA = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]}
EXACT = {"dtype": "float64", "lr": 1e-2, "micro_batch_tokens": 40}
CASES = {
    "full": ({}, LossConfig(importance="off"), None, {}),
    "one long micro-batch": ({"micro_batch_tokens": 4096}, LossConfig(importance="off"), None, {}),
    "minibatches": ({"max_grad_norm": 0.1}, LossConfig(kl_coef=0.1), None, {"epochs": 2, "minibatches": 2}),
    "lora": ({"packing": "padded"}, LossConfig(importance="off"), LORA, {}),
    "checkpointing": ({"gradient_checkpointing": True}, LossConfig(entropy_coef=0.01), None, {}),
}
CRITICS = {
    "critic": (40, {"epochs": 2, "minibatches": 3, "value_clip": 0.2}),
    "critic in one micro-batch": (4096, {"max_grad_norm": 0.1}),
    "critic on a frozen decoder": (40, {"train_backbone": False, "minibatches": 9}),
}


def tiny_model(tied):
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        initializer_range=0.3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


def draw_samples(number=9):
    rng = np.random.default_rng(0)
    samples = []
    for i in range(number):
        prompt = rng.integers(0, VOCABULARY, rng.integers(1, 9)).tolist()
        completion = rng.integers(0, VOCABULARY, rng.integers(1, 7)).tolist()
        logprobs = (-3 + 0.5 * rng.normal(size=len(completion))).tolist()
        samples.append(Sample(prompt, completion, logprobs, float(rng.normal()), ("solver_0", "verifier_0")[i % 2]))
    return samples


def build(case, ranks=None):
    settings, loss, lora, _ = CASES[case]
    model = tiny_model(tied=case != "lora")
    return Learner(model, LearnerConfig(**{**EXACT, **settings}), loss, lora=lora, ranks=ranks)


def train(learner, case):
    """Three updates; what they said, and the log-probs after them."""
    samples = draw_samples()
    said = [learner.update(samples, **CASES[case][3]).to_dict() for _ in range(3)]
    logprobs = learner.logprobs([s.prompt_ids for s in samples], [s.completion_ids for s in samples])
    return said, [values.tolist() for values in logprobs]


def build_critic(case, ranks=None):
    tokens, settings = CRITICS[case]
    config = CriticConfig(learning_rate=1e-2, **settings)
    return Critic(tiny_model(tied=True), config, name="solver", micro_batch_tokens=tokens, dtype="float64", ranks=ranks)


def train_critic(critic):
    """Three updates; what they said, and the values before and after each."""
    prompts = [sample.prompt_ids for sample in draw_samples()]
    targets = np.array([prompt[-1] % 2 + 0.1 * len(prompt) for prompt in prompts])
    said, values = [], [critic.values(prompts)]
    for _ in range(3):
        said.append(critic.update(prompts, targets, values[-1]))
        values.append(critic.values(prompts))
    return said, [row.tolist() for row in values]


def rank_main(rank, port, folder, pipe):
    """What a rank does: every case, then states between one and two ranks, then a gradient that is not finite."""
    try:
        warnings.filterwarnings("error", message="FSDP2-wrapped module")  # of outputs that lose their hooks
        from torch.distributed import TCPStore

        from trainers.distributed.fsdp import FSDPRanks, process_group
        from trainers.distributed.learners import _part, _restore, place_on
        from trainers.distributed.sharded_state import read

        torch.set_num_threads(1)
        found = {}
        store = TCPStore("127.0.0.1", port, is_master=False)
        with process_group(store, rank, 2):
            for case in CASES:
                learner = build(case, FSDPRanks())
                found[case] = train(learner, case)
                write(learner.tensors(), folder / case)
            learner = build("full", FSDPRanks())
            for case in CRITICS:
                critic = build_critic(case, FSDPRanks())
                found[case] = train_critic(critic)
                write({**learner.tensors(), "critic": critic.tensors()}, folder / case)
                part = _part(critic)
                found[f"{case} went on"] = train_critic(critic)
                critic = build_critic(case, FSDPRanks())
                _restore(critic, part)
                found[f"{case} restarted"] = train_critic(critic)
            critic = build_critic("critic", FSDPRanks())
            critic.load_state_dict(read(folder / "one", place_on(critic), "critic"))
            found["critic resumed"] = train_critic(critic)
            critic = build_critic("critic", FSDPRanks())
            critic.load_state_dict(read_whole_state(folder / "one")["critic"])
            found["critic resumed from whole tensors"] = train_critic(critic)
            found["few prompts"] = critic.values([[1]]).tolist(), critic.values([]).tolist()
            found["held"] = sum(p.to_local().numel() for p in critic.parameters())
            try:
                critic.update([[1], [2, 3]], np.array([0.0, 1e300]), np.zeros(2))
            except NonFiniteGradient as problem:
                found["critic not finite"] = problem.agent, problem.loss, problem.norm
            learner = build("minibatches", FSDPRanks())
            learner.load_state_dict(read(folder / "one", place_on(learner), "learner"))
            found["resumed"] = train(learner, "minibatches")
            whole = read_whole_state(folder / "one")
            learner = build("minibatches", FSDPRanks())
            learner.load_state_dict(whole)
            found["resumed from whole tensors"] = train(learner, "minibatches")
            samples = draw_samples()
            samples[3] = Sample([1, 2], [3], [-1.0], 1e308, "verifier_0", weight=1e308)
            before = learner.steps
            try:
                learner.update(samples)
            except NonFiniteGradient as problem:
                found["not finite"] = problem.agent, learner.steps == before
        pipe.send(found)
    except BaseException:
        pipe.send(traceback.format_exc())
        raise


def read_whole_state(folder):
    """As a checkpoint of a run in one process is read."""
    return torch.load(folder.with_suffix(".pt"), weights_only=True)


@pytest.fixture(scope="module")
def one():
    """What a single process makes of every case."""
    return {case: (learner := build(case), train(learner, case)) for case in CASES}


@pytest.fixture(scope="module")
def critics():
    """What a single process makes of every critic."""
    return {case: (critic := build_critic(case), train_critic(critic)) for case in CRITICS}


@pytest.fixture(scope="module")
def saved(one, critics, tmp_path_factory):
    """A folder with the state of one process, to be read by two."""
    folder = tmp_path_factory.mktemp("states")
    learner, critic = one["minibatches"][0], critics["critic"][0]
    write({**learner.tensors(), "critic": critic.tensors()}, folder / "one")
    torch.save({**learner.state_dict(), "critic": critic.state_dict()}, folder / "one.pt")
    return folder


@pytest.fixture(scope="module")
def two(saved):
    """What each of two ranks makes of every case."""
    from torch.distributed import TCPStore

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainers.trainer", "trainers.policies.hf", "transformers", "peft"])
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes, processes = [], []
    for rank in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=rank_main, args=(rank, store.port, saved, theirs))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    found = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join()
    assert not any(isinstance(result, str) for result in found), found
    return found


def assert_close(mine, theirs):
    assert [said.keys() for said in mine[0]] == [said.keys() for said in theirs[0]]
    for ours, others in zip(mine[0], theirs[0], strict=True):
        assert ours == pytest.approx(others, rel=1e-7, abs=1e-9)
    for ours, others in zip(mine[1], theirs[1], strict=True):
        assert ours == pytest.approx(others, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_learn_what_one_process_learns(one, two, case):
    """Losses, norms of every agent, token metrics and the log-probs after three updates."""
    for rank in two:
        assert_close(rank[case], one[case][1])


@pytest.mark.parametrize("case", CASES)
def test_the_state_of_two_ranks_is_read_by_one_process(one, two, saved, case):
    learner = build(case)
    learner.load_state_dict(saved / case)
    assert_same_state(learner.state_dict(), one[case][0].state_dict())


def assert_same_state(ours, theirs):
    assert (ours["steps"], ours["updates"]) == (theirs["steps"], theirs["updates"])
    for name, weight in theirs["weights"].items():
        torch.testing.assert_close(ours["weights"][name], weight, rtol=1e-6, atol=1e-8)
    assert ours["optimizer"].keys() == theirs["optimizer"].keys()
    for i, moments in theirs["optimizer"].items():
        for key, value in moments.items():
            torch.testing.assert_close(ours["optimizer"][i][key], value, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("case", CRITICS)
def test_two_ranks_of_a_critic_learn_what_one_process_learns(critics, two, case):
    """Losses, norms and the values after every update."""
    for rank in two:
        assert_close(rank[case], critics[case][1])


@pytest.mark.parametrize("case", CRITICS)
def test_the_critic_of_two_ranks_is_read_by_one_process(critics, two, saved, case):
    critic, learner = build_critic(case), build("full")
    critic.load_state_dict(saved / case)
    assert_same_state(critic.state_dict(), critics[case][0].state_dict())
    learner.load_state_dict(saved / case)  # which is beside it
    assert_same_state(learner.state_dict(), build("full").state_dict())
    assert_same_state(read_whole(saved / case)["critic"], critic.state_dict())


@pytest.mark.parametrize("how", ["critic resumed", "critic resumed from whole tensors"])
def test_two_ranks_of_a_critic_go_on_from_the_state_of_one_process(two, saved, how):
    critic = build_critic("critic")
    critic.load_state_dict(read_whole_state(saved / "one")["critic"])
    expected = train_critic(critic)
    value = critic.values([[1]]).tolist()
    for rank in two:
        assert_close(rank[how], expected)
        assert rank["few prompts"] == (pytest.approx(value, abs=1e-9), [])
    # Each has its part of every matrix of the decoder; the head has one row.
    assert sum(rank["held"] for rank in two) == sum(p.numel() for p in critic.parameters())
    assert abs(two[0]["held"] - two[1]["held"]) <= 64


@pytest.mark.parametrize("case", CRITICS)
def test_ranks_that_were_started_anew_go_on_bit_for_bit(two, case):
    for rank in two:
        assert rank[f"{case} restarted"] == rank[f"{case} went on"]


def test_the_model_of_two_ranks_is_exported_for_transformers(one, two, saved, tmp_path):
    for case in ("full", "lora"):
        learner = build(case)
        learner.load_state_dict(saved / case)
        learner.save_pretrained(tmp_path / case)
        model = LlamaForCausalLM.from_pretrained(tmp_path / case, dtype=torch.float64)
        expected = dict(one[case][0].full_named_tensors())
        for name, weight in model.named_parameters():
            torch.testing.assert_close(weight, expected[name].to(weight), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("how", ["resumed", "resumed from whole tensors"])
def test_two_ranks_go_on_from_the_state_of_one_process(two, saved, how):
    learner = build("minibatches")
    learner.load_state_dict(torch.load(saved / "one.pt", weights_only=True))
    expected = train(learner, "minibatches")
    for rank in two:
        assert_close(rank[how], expected)


def test_every_rank_names_the_agent_whose_gradient_is_not_finite(two):
    assert [rank["not finite"] for rank in two] == [("verifier_0", True)] * 2
    for rank in two:
        agent, *numbers = rank["critic not finite"]
        assert agent == "critic of solver"
        assert not np.isfinite(numbers).all()


def test_a_folder_without_a_critic_is_refused(two, saved):
    with pytest.raises(ValueError, match="holds no critic"):
        build_critic("critic").load_state_dict(saved / "full")


def test_a_folder_that_holds_no_state_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no state of a learner"):
        read_whole(tmp_path)


def test_the_error_of_a_gradient_reaches_other_processes_whole():
    problem = pickle.loads(pickle.dumps(NonFiniteGradient("solver_0", 3, float("inf"), 2.0)))
    assert (problem.agent, problem.step, problem.loss, problem.norm) == ("solver_0", 3, float("inf"), 2.0)
    assert str(problem) == str(NonFiniteGradient("solver_0", 3, float("inf"), 2.0))
