from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.capacity.devices import Device
from trainers.capacity.shapes import known_models
from trainers.capacity.steptime import PROBE_TOKENS, PROBES
from trainers.capacity.timing import (
    Features,
    Line,
    decode_features,
    fit_line,
    fit_points,
    rates_of,
    update_features,
)
from trainers.members import PROOF_TOKENS
from trainers.proving import PROBE_TASKS
from trainers.recipe_files import ConfigError

SHAPE = known_models()["Qwen/Qwen3-4B"][0]
positive = st.floats(1e-3, 1e3)


def test_the_proof_that_is_timed_is_the_one_that_is_made():
    assert (PROBES, PROBE_TOKENS) == (PROBE_TASKS, PROOF_TOKENS)


@given(coefficients=st.tuples(*[st.sampled_from([0.0, 0.5, 2.0])] * 3).filter(any))
def test_a_line_is_found_again(coefficients):
    line = Line(*coefficients)
    points = [Features(a, b * 1e9, c * 1e6) for a, b, c in [(1, 1, 1), (2, 1, 4), (1, 5, 2), (3, 2, 2), (2, 7, 1)]]
    fitted, error = fit_line(points, [line.seconds(point) for point in points])
    assert error < 1e-6
    for point in points:
        assert fitted.seconds(point) == pytest.approx(line.seconds(point), rel=1e-6)


@given(times=st.lists(positive, min_size=3, max_size=8))
def test_a_fitted_line_never_has_a_negative_coefficient(times):
    points = [Features(1 + i % 3, 1 + i * i, 1 + (7 * i) % 5) for i in range(len(times))]
    line, _ = fit_line(points, times)
    assert min(line.per_layer, line.per_flop, line.per_byte) >= 0


def test_nothing_to_fit_is_an_error():
    with pytest.raises(ValueError, match="no point"):
        fit_line([], [])


def test_a_roofline_takes_the_larger_of_computing_and_reading():
    line = Line(1.0, 2.0, 3.0, overlap=True)
    assert line.seconds(Features(1, 10, 1)) == 1 + 20
    assert line.seconds(Features(1, 1, 10)) == 1 + 30


def test_a_gpu_reads_its_weights_at_batch_one():
    device = Device("it", 1e12, 1e15, 1e12, 1e11, 1e10, "a test")
    rates = rates_of(device, "vllm")
    seconds = rates.decode.seconds(decode_features(SHAPE, 1, 0, 2))
    reading = 2 * (SHAPE.decoder_matrices + SHAPE.head) / (1e12 * 0.6)
    assert seconds == pytest.approx(36 * 2e-5 + reading)
    assert not rates.measured


def test_a_back_end_that_was_not_measured_is_refused():
    cpu = Device("cpu", 1e10, 0, 0, 0, 0, "")
    assert rates_of(cpu, "hf").measured
    with pytest.raises(ConfigError, match="capacity_points"):
        rates_of(cpu, "openai")


def test_the_points_that_ship_fit():
    """One line from 0.4 to 135 million parameters: no point is off by more than 60 %."""
    assert {"update", "hf.decode", "hf.prefill", "vllm.decode", "vllm.prefill"} <= set(fit_points())
    for kind, (line, error) in fit_points().items():
        assert line.per_flop > 0, kind
        assert error < 0.6, kind


@given(tokens=st.floats(1, 1e6), more=st.floats(0, 1e6), recompute=st.booleans(), lora=st.booleans())
@settings(deadline=None)
def test_more_tokens_never_take_less_time(tokens, more, recompute, lora):
    def flops(tokens, **change):
        given = {"recompute": recompute, "lora": lora, **change}
        return update_features(
            SHAPE, tokens=tokens, length=100, predicted=tokens / 2, passes=1, steps=1, trained=1, **given
        ).flops

    assert flops(tokens + more) >= flops(tokens)
    assert flops(tokens, recompute=True) > flops(tokens, recompute=False)
    assert flops(tokens, lora=True) < flops(tokens, lora=False)
    assert flops(tokens, again=1) > flops(tokens)
