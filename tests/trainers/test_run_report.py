"""The report on runs: alarms where they are, everything escaped, nothing loaded, and a clear word where data lacks."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from trainers.api import train
from trainers.cli import main
from trainers.learner import NonFiniteGradient
from trainers.models import build_tiny_model
from trainers.run_report import ReportError, write_report
from trainers.run_report_alarms import find_alarms
from trainers.run_report_charts import Chart, Line, describe, draw, thin, ticks
from trainers.run_report_data import read_run, read_runs
from trainers.run_report_panels import SECTIONS, match
from trainers.trainer import Trainer

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Reads a page, checks that its elements nest, and keeps what matters."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture
def make_run(tmp_path):
    """Writes a run folder from columns of numbers; the first update is 1."""

    def make(name="run", *, first=1, config=None, **columns):
        folder = tmp_path / name
        folder.mkdir()
        columns = {key.replace("__", "/"): values for key, values in columns.items()}
        length = max(len(values) for values in columns.values())
        rows = []
        for i in range(length):
            row = {key: values[i] for key, values in columns.items() if i < len(values) and values[i] != "absent"}
            rows.append({"update": first + i, **row})
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        if config is not None:
            (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


def alarms(folder):
    return [(alarm.update, alarm.title) for alarm in find_alarms(read_run(folder))]


def test_a_healthy_run_has_no_alarm(make_run):
    folder = make_run(
        train__success=[0.1 * i for i in range(10)],
        train__zero_variance=[0.5, 1.0, 1.0, 0.5] * 2,
        agent__a_0__spike_ratio=[1.0, 4.9] * 5,
        agent__a_0__version_lag_max=[0.0] * 10,
        agent__a_0__sampler_diff=[1e-6] * 10,
        agent__a_0__truncated=[0.3, 0.2] * 5,
        agent__a_0__entropy=[1.0 - 0.08 * i for i in range(10)],
    )
    assert alarms(folder) == []
    assert "No alarm." in Page(write_report([folder]).read_text()).text


def test_turns_as_stale_as_the_run_allows_are_no_alarm(make_run):
    allowed = {"max_staleness": 1}
    assert alarms(make_run(config=allowed, agent__a_0__version_lag_max=[0, 1, 1])) == []
    stale = make_run("stale", config=allowed, agent__a_0__version_lag_max=[0, 1, 2])
    assert alarms(stale) == [(3, "a_0 was sampled with stale weights")]


@pytest.mark.parametrize(
    ("columns", "update", "title"),
    [
        ({"agent__a_0__grad_norm": [1, 1, None, None]}, 3, "Numbers that are not finite (NaN or infinite)"),
        ({"agent__a_0__spike_ratio": [1, 1, 1, 5.0, 1, 7]}, 4, "The gradient of a_0 spiked"),
        ({"agent__a_0__version_lag_max": [0, 0, 1, 2]}, 3, "a_0 was sampled with stale weights"),
        ({"agent__a_0__sampler_diff": [0.01, 0.5]}, 2, "Sampler and learner disagree on a_0"),
        ({"train__zero_variance": [0, 1, 1, 0, 1, 1, 1, 0]}, 5, "Nothing to learn from"),
        ({"agent__a_0__zero_variance": [0, 1, 1, 1]}, 2, "a_0 had nothing to learn from"),
        (
            {"agent__a_0__truncated": [0.0] * 8 + [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]},
            10,
            "More and more answers of a_0 are cut off at the token limit",
        ),
        (
            {"agent__a_0__invalid": [0.0, 0.0, 0.5, 0.5]},
            3,
            "More and more answers of a_0 are refused by the environment as unusable",
        ),
        ({"agent__a_0__entropy": [2, 2, 2, 0.1, 2, 0.1, 0.1, 0.1]}, 6, "The entropy of a_0 collapsed"),
        ({"train__success": [0.2, 0.8, 0.8, 0.8, 0.1, 0.1, 0.1]}, 5, "Success in training fell"),
        ({"eval__success": [0.5, "absent", 0.5, "absent", 0.1]}, 5, "Held-out success fell"),
        ({"train__episodes": [20, 20, 20], "train__failed_episodes": [0, 1, 2]}, 3, "Episodes failed"),
    ],
)
def test_an_alarm_names_what_happened_and_where_it_began(make_run, columns, update, title):
    folder = make_run(**columns)
    assert alarms(folder) == [(update, title)]
    page = Page(write_report([folder]).read_text())
    assert f"Update {update}: {title}." in page.text
    marks = [attributes for tag, attributes in page.tags if tag == "line" and attributes.get("class") == "alarm"]
    assert marks, "the chart of the metric marks the update"


def test_entropy_that_is_low_because_answers_are_right_is_told_apart(make_run):
    columns = {"agent__a_0__entropy": [2, 2, 0.1, 0.1, 0.1]}
    (sure,) = find_alarms(read_run(make_run("sure", train__success=[0.1, 0.5, 0.95, 1, 1], **columns)))
    (lost,) = find_alarms(read_run(make_run("lost", train__success=[0.1, 0.1, 0.1, 0.1, 0.1], **columns)))
    assert "may just be sure of right answers" in sure.detail
    assert "hardly explores" in lost.detail


def test_a_run_that_stopped_itself_says_why_first(make_run):
    folder = make_run(agent__a_0__spike_ratio=[1, 8])
    reason = {"update": 3, "error": "WeightSyncError", "message": "lm_head differs by 0.7"}
    (folder / "stopped.json").write_text(json.dumps(reason))
    found = find_alarms(read_run(folder))
    assert [(alarm.update, alarm.stop) for alarm in found] == [(2, False), (3, True)]
    assert "did not hold the learner's weights" in found[1].title
    text = Page(write_report([folder]).read_text()).text
    assert "lm_head differs by 0.7" in text
    assert "the run stopped itself" in text


def test_success_on_trees_is_shown_apart_and_labelled(make_run):
    folder = make_run(train__path_success=[0.5, 0.9], train__team_return=[0.5, 0.9], eval__success=[0.1, 0.2])
    page = write_report([folder]).read_text()
    figures = {re.search(r"<h3>(.*?)</h3>", part)[1]: part for part in page.split("<figure>")[1:]}
    assert "0.9 at update 2" not in figures["Success"]
    assert "held-out: 0.1 at update 1, 0.2 at update 2" in figures["Success"]
    assert "0.9 at update 2" in figures["Success of tree paths"]
    assert "Not how the policies play" in figures["Success of tree paths"]
    assert "do not say how the policies play" in Page(page).text
    assert "success in training, first" not in Page(page).text


def test_a_zero_sum_game_says_what_success_means(make_run):
    folder = make_run(train__success=[0.9, 1.0], config={"env": {"id": "kuhn-poker"}, "updates": 2})
    assert "share of games that somebody won" in Page(write_report([folder]).read_text()).text
    other = make_run("other", train__success=[0.9], config={"env": {"id": "gone-v7"}})
    assert "zero-sum" not in Page(write_report([other]).read_text()).text


def test_text_from_a_run_is_escaped_and_nothing_is_loaded(make_run):
    evil = "<script>alert(1)</script>&\"'\ud800"
    agent = "<img src=x onerror=alert(2)>"
    folder = make_run(
        **{f"agent/{agent}/spike_ratio": [9.0], f"agent/{agent}/reward/{evil}": [1.0], evil: [1.0]},
        config={"env": {"id": evil}, "policies": {evil: {"model": evil}}, "updates": 1},
    )
    (folder / "versions.json").write_text(json.dumps([{"after_update": 0, "versions": {evil: evil}}]))
    (folder / "stopped.json").write_text(json.dumps({"update": 2, "error": evil, "message": evil}))
    page = Page(write_report([folder]).read_text())
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "link", "iframe", "object", "image", "use", "foreignobject"}
    for tag, attributes in page.tags:
        assert not {name for name in attributes if name.startswith("on")}, tag
        assert (attributes.get("href") or "#").startswith("#")
        assert "src" not in attributes
    (policy,) = [a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a]
    assert policy.startswith("default-src 'none'")
    assert "url(" not in write_report([folder]).read_text()


def test_the_page_is_accessible(make_run):
    page = Page(write_report([make_run(train__success=[0.1, 0.2], agent__a_0__return=[1.0, 2.0])]).read_text())
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert ("html", {"lang": "en"}) in page.tags
    assert any(tag == "meta" and attributes.get("name") == "viewport" for tag, attributes in page.tags)
    charts = [attributes for tag, attributes in page.tags if tag == "svg" and attributes.get("role") == "img"]
    assert charts
    for attributes in charts:
        assert set(attributes["aria-labelledby"].split()) <= set(ids)
    for tag, attributes in page.tags:
        if (attributes.get("href") or "").startswith("#"):
            assert attributes["href"][1:] in ids, tag


def test_several_runs_share_their_charts(make_run):
    one = make_run("one", train__success=[0.1, 0.2], config={"seed": 1, "updates": 2})
    two = make_run("two", train__success=[0.3, 0.4], agent__a_0__return=[1.0], config={"seed": 2, "updates": 2})
    path = write_report([one, two])
    assert path == one / "comparison.html"
    page = path.read_text()
    assert page.count('aria-labelledby="chart1-t') == 1
    assert "one · in training: 0.1 at update 1" in page
    assert "two · in training: 0.3 at update 1" in page
    differing = page[page.index("Settings that differ") : page.index("All settings")]
    assert "seed" in differing
    assert "updates" not in differing
    colors = re.findall(r'<polyline class="(c\d)"', page[: page.index("Outcome of") if "Outcome of" in page else None])
    assert len(set(colors)) == 2


def test_runs_whose_folders_are_called_alike_are_told_apart(make_run, tmp_path):
    make_run("x", train__success=[1.0])
    (tmp_path / "deep").mkdir()
    (tmp_path / "x").rename(tmp_path / "deep" / "x")
    other = make_run("x", train__success=[1.0])
    names = [run.name for run in read_runs([other, tmp_path / "deep" / "x"])]
    assert len(set(names)) == 2
    with pytest.raises(ReportError, match="given twice"):
        write_report([other, other])


def test_metrics_that_are_on_no_chart_follow_at_the_end(make_run):
    folder = make_run(agent__a_0__novel_thing=[1.0, 3.0], agent__b_0__novel_thing=[5.0, 7.0], lone=[2.0])
    page = write_report([folder]).read_text()
    other = page[page.index('id="other"') :]
    assert "agent: novel thing" in other
    assert "a_0: 1 at update 1, 3 at update 2" in other
    assert "lone" in other


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: None, "is not a folder"),
        (lambda folder: folder.mkdir(), "is no training run"),
        (lambda folder: [folder.mkdir(), (folder / "config.json").write_text("{}")], "has logged no update yet"),
        (lambda folder: [folder.mkdir(), (folder / "metrics.jsonl").write_text("")], "has logged no update yet"),
        (lambda folder: [folder.mkdir(), (folder / "metrics.jsonl").write_text('{"upd')], "has logged no update yet"),
        (lambda folder: [folder.mkdir(), (folder / "metrics.jsonl").write_text("{x\n{}\n")], "line 1: not JSON"),
        (lambda folder: [folder.mkdir(), (folder / "metrics.jsonl").write_text("[1]\n")], "line 1 is no metric line"),
        (
            lambda folder: [
                folder.mkdir(),
                (folder / "metrics.jsonl").write_text('{"update": 1}\n'),
                (folder / "config.json").write_text("{"),
            ],
            "config.json cannot be read",
        ),
    ],
)
def test_what_cannot_be_reported_is_a_clear_error(tmp_path, capsys, prepare, message):
    folder = tmp_path / "run"
    prepare(folder)
    assert main(["report", str(folder)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert str(folder) in error
    assert "Traceback" not in error


def test_a_run_that_is_under_way_with_a_torn_line(make_run):
    folder = make_run(train__success=[0.5], config={"updates": 9})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"update": 2, "train/su')
    text = Page(write_report([folder]).read_text()).text
    assert "1 of 9 updates; not finished: it is still going, or was ended from outside." in text
    assert "last line of metrics is cut off" in text
    assert "points and no trend" in text
    assert "<polyline" not in write_report([folder]).read_text()


def test_a_page_that_cannot_be_written_is_an_error(make_run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="cannot be written"):
        write_report([make_run(train__success=[0.5])], tmp_path / "file" / "page.html")


def test_every_metric_that_is_charted_fits_one_pattern_only():
    patterns = [pattern for _, panels in SECTIONS for panel in panels for pattern in panel.metrics]
    assert len(patterns) == len(set(patterns))
    assert match("agent/*/length", "agent/a_0/length") == ("a_0",)
    assert match("agent/*/length", "agent/a_0/length/b") is None
    assert match("agent/*/length", "policy/a_0/length") is None


@pytest.mark.parametrize(
    "values",
    [[0.0], [5.0, 5.0], [0.0, 0.0], [-3.0, 2.0], [1e-9, 1e9], [1e-300, 1.0], [-1e12, 1e12], [1.0, 1.0 + 1e-15], []],
)
@pytest.mark.parametrize("log", [False, True])
def test_charts_stay_within_their_frame(values, log):
    chart = Chart("c", "t", [Line("a", list(enumerate(values, 1)), not_finite=[7])], log=log, alarms=[(99, "late")])
    root = ET.fromstring(draw(chart))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for element in root.iter():
        for name, most in (("cx", width), ("x1", width), ("x2", width), ("cy", height), ("y1", height), ("y2", height)):
            if name in element.attrib:
                assert -1e-6 <= float(element.attrib[name]) <= most + 1e-6
        for pair in element.attrib.get("points", "").split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_a_point_is_drawn_where_it_belongs():
    chart = Chart("c", "t", [Line("a", [(0, 0.0), (5, 0.5), (10, 1.0)])], unit=(0.0, 1.0))
    (line,) = [e for e in ET.fromstring(draw(chart)).iter() if e.tag == "polyline"]
    (x0, y0), (x1, y1), (x2, y2) = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    assert y1 == pytest.approx((y0 + y2) / 2, abs=0.1)
    assert x0 < x2
    assert y0 > y2, "larger values are higher"


def test_a_logarithmic_chart_says_so():
    chart = Chart("c", "t", [Line("a", [(1, 1e-3), (2, 1.0), (3, 1e3)])], log=True)
    (line,) = [e for e in ET.fromstring(draw(chart)).iter() if e.tag == "polyline"]
    ys = [float(pair.split(",")[1]) for pair in line.attrib["points"].split()]
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2)
    assert "Logarithmic scale." in draw(chart)
    assert "Logarithmic" not in describe(chart)


def test_thinning_keeps_every_peak_and_both_ends():
    points = [(i, math.sin(i)) for i in range(10_000)]
    points[7777] = (7777, 50.0)
    points[1234] = (1234, -50.0)
    thinned = thin(points, 400)
    assert len(thinned) <= 400
    assert {points[0], points[-1], points[7777], points[1234]} <= set(thinned)
    assert thinned == sorted(thinned)
    assert thin(points[:400], 400) == points[:400]


def test_ticks_are_round_and_cover():
    for low, high in [(0, 1), (0.37, 0.41), (-5, 1234), (1e-7, 3e-7)]:
        found = ticks(low, high)
        assert 2 <= len(found) <= 8
        assert found[0] <= low + 1e-9
        assert found[-1] >= high - 1e-9


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """A run of a real, tiny model."""
    folder = tmp_path_factory.mktemp("real")
    words = [rf"\boxed{{{n}}}" for n in range(4)] + ["<verify>approve</verify>", "<verify>reject</verify>"]
    model = build_tiny_model(folder / "m", vocab=words, hidden_size=16, layers=1, head_dim=8, init_std=0.1)
    (folder / "t.jsonl").write_text(
        "".join(json.dumps({"question": f"Two ({i})?", "answer": "2"}) + "\n" for i in range(30))
    )
    policy = {"model": str(model), "backend": "hf", "learning_rate": 0.01, "sampling": {"max_tokens": 2}}
    return {
        "env": {"id": "math-2agent", "tasks": str(folder / "t.jsonl"), "split": "train"},
        "policies": {"solver": policy, "verifier": policy},
        "updates": 3,
        "tasks_per_update": 4,
        "samples_per_task": 4,
        "evaluation": {"every": 1, "tasks": 3},
    }


def test_a_real_run(settings, tmp_path, capsys):
    run = tmp_path / "run"
    train(settings, out=run)
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert str(tmp_path / "page.html") in capsys.readouterr().out
    html = (tmp_path / "page.html").read_text()
    page = Page(html)
    assert "3 of 3 updates; finished." in page.text
    titles = set(re.findall(r"<h3>(.*?)</h3>", html))
    expected = {
        "Success", "Outcome of the team", "Return of each agent", "Reward parts of solver_0", "Spike ratio", "Entropy",
        "Gradient norm of each agent", "Inflation factor", "Groups without variance", "Group size", "μ_k − μ",
        "Clipped tokens", "σ_k / σ", "Sampler and learner", "Length", "Truncated", "Invalid", "Version lag",
        "Seconds by phase", "Tokens a second",
    }  # fmt: skip
    assert expected <= titles
    assert "Versions of run" in page.text
    assert "transformers" in page.text


async def test_a_real_run_that_stops_says_so(settings, tmp_path, monkeypatch):
    from trainers.config import load_config
    from trainers.learner import Learner

    real = Learner.update

    def fail(self, samples, **options):
        if self.updates >= 1:
            raise NonFiniteGradient("solver_0", 1, math.nan, math.nan)
        return real(self, samples, **options)

    monkeypatch.setattr(Learner, "update", fail)
    with pytest.raises(NonFiniteGradient):
        await Trainer(load_config({**settings, "evaluation": {}}), tmp_path / "run").run()
    (alarm,) = [alarm for alarm in find_alarms(read_run(tmp_path / "run")) if alarm.stop]
    assert alarm.update == 2
    assert alarm.title == "A gradient was not a number, and the run stopped"
    assert "solver_0" in alarm.detail
