from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from codedfl.errors import InputError
from codedfl.report import Curve, Record, read_runs, render_page, write_report
from codedfl.report._comparing import configuration_section, side_by_side_section
from codedfl.report._results import results_section
from tests.report.conftest import HOSTILE, NAMES

LARGEST_PAGE = 1_000_000


class Outline(HTMLParser):
    """Collects elements, their attributes and their text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.contents: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if not self.elements:
            return
        tag, attributes = self.elements[-1]
        self.contents.setdefault(f"{tag}#{attributes.get('id')}", data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.contents["script#data"])
        return found


@pytest.fixture
def page(finished: Path) -> str:
    return write_report([finished]).read_text(encoding="utf-8")


def test_every_section_is_there(page: str) -> None:
    titles = re.findall(r"<h2[^>]*>([^<]*)</h2>", page)
    assert titles == [
        *("Verdict", "Results", "Learning curves", "Who arrived when", "Seconds and bytes by party", "Privacy"),
        *("Contract items", "Spectrum of the coded Hessian", "Devices", "Configuration and environment"),
    ]


def test_the_numbers_are_those_of_the_run(page: str, finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    for scheme in summary["schemes"]:
        assert f"{100 * scheme['accuracy']:.2f}%" in page
    for sentence in summary["verdict"]:
        assert html.escape(sentence) in page
    data = Outline(page).data
    assert [curve["score"][-1] for curve in data["curves"]] == pytest.approx(
        [scheme["accuracy"] for scheme in summary["schemes"]], abs=1e-6
    )
    assert data["schemes"] == [scheme["title"] for scheme in summary["schemes"]]


def test_names_from_files_stay_text(page: str) -> None:
    outline = Outline(page)
    assert outline.of("img") == []
    assert [attributes.get("type") for attributes in outline.of("script")] == ["application/json", None]
    assert not [name for _, attributes in outline.elements for name in attributes if name.startswith("on")]
    assert html.escape(HOSTILE) in page
    assert all(html.escape(name) in page for name in NAMES)


def test_the_page_needs_nothing_but_itself(page: str) -> None:
    outline = Outline(page)
    links = [value for _, a in outline.elements for key, value in a.items() if key in ("src", "href") and value]
    assert links == ["data:,", "https://github.com/leeoniya/uPlot"]
    assert "url(" not in page
    assert "@import" not in page


def test_the_policy_allows_just_this_script_and_this_style(page: str) -> None:
    (policy,) = [a["content"] or "" for a in Outline(page).of("meta") if "http-equiv" in a]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "connect-src" not in policy
    for tag in ("script", "style"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not [a for _, a in Outline(page).elements if "style" in a], "the policy would ignore it"


def test_identifiers_are_unique_also_with_several_runs(finished: Path) -> None:
    second = Path(shutil.copytree(finished, finished.parent / "second"))
    for records in (read_runs([finished]), read_runs([finished, second])):
        found = [a["id"] for _, a in Outline(render_page(records)).elements if "id" in a]
        assert len(found) == len(set(found))


def test_several_runs_side_by_side(finished: Path) -> None:
    second = Path(shutil.copytree(finished, finished.parent / "second"))
    config = (second / "config.toml").read_text()
    (second / "config.toml").write_text(config.replace("total_reward = 100.0", "total_reward = 50.0"))
    page = write_report([finished, second], finished.parent / "both.html").read_text(encoding="utf-8")
    assert "They differ in incentive.total_reward." in page
    assert "<mark>50.0</mark>" in page
    data = Outline(page).data
    assert data["runs"] == ["first", "second"]
    assert [(curve["run"], curve["dash"]) for curve in data["curves"]] == [(0, 0)] * 3 + [(1, 1)] * 3


def test_side_by_side_only_schemes_that_keep_epsilon_are_marked(finished: Path) -> None:
    (record,) = read_runs([finished])
    covers = {"fedavg": "nothing", "scfl": "upload", "ccfl": "everything"}
    score = {"fedavg": 0.9, "scfl": 0.8, "ccfl": 0.7}
    schemes = [
        {**each, "accuracy": score[each["scheme"]], "privacy": {"covers": covers[each["scheme"]], "epsilon": 2.0}}
        for each in record.schemes
    ]
    open_run = replace(record, schemes=schemes)
    private = replace(open_run, config={**record.config, "privacy.epsilon": 2.0})
    page = str(side_by_side_section([open_run, private]))
    assert re.findall(r'<strong class="best">([^<]*)<', page) == ["90.00%", "70.00%"]
    assert "among the schemes that keep it for everything" in page


def test_scores_and_times_are_marked_by_the_same_rule(finished: Path) -> None:
    """FedAvg has the best score, SCFL the shortest times and diverged; CCFL alone keeps the epsilon."""
    (record,) = read_runs([finished])
    soonest = {"fedavg": 20.0, "scfl": 10.0, "ccfl": 30.0}
    curves = tuple(Curve(name, name, [0, 9], [0.0, s], [0.0, s], [0.0, 0.99]) for name, s in soonest.items())
    scores = {"fedavg": 0.9, "scfl": None, "ccfl": 0.7}
    covers = {"fedavg": "nothing", "scfl": "upload", "ccfl": "everything"}
    schemes = [
        {**each, "accuracy": scores[name], "privacy": {"covers": covers[name], "epsilon": 2.0}}
        for each in record.schemes
        for name in [each["scheme"]]
    ]
    open_run = replace(record, curves=curves, schemes=schemes, reference=0.95)
    private = replace(open_run, config={**record.config, "privacy.epsilon": 2.0})
    marks = r'data-label="(accuracy|to[^"]*)"><strong class="best">([^<]*)<'
    times = ("to 95%, training", "to 95%, everything")
    for run, score, time in ((open_run, "90.00%", "20 s"), (private, "70.00%", "30 s")):
        page = str(results_section(run))
        assert re.findall(marks, page) == [("accuracy", score), *((name, time) for name in times)]
        assert ("among the schemes that keep it for everything" in page) is run.private


def test_many_runs_have_a_row_each(finished: Path) -> None:
    for place in range(5):
        shutil.copytree(finished, finished.parent / f"sweep/{place}")
    page = write_report([finished.parent / "sweep"]).read_text(encoding="utf-8")
    assert re.search(r'<th scope="row">4 <span class="badge completed">', page)
    assert Outline(page).data["colourByRun"]


def sweep_of(record: Record, runs: int = 12) -> list[Record]:
    """Return a sweep over five keys with a dozen schemes."""
    (first, *_) = record.schemes
    schemes = [{**first, "scheme": f"scheme-{i}", "title": f"Scheme number {i}"} for i in range(12)]
    keys = ("coding.noise_variance", "data.partition", "training.local_steps", "features.dimension", "seed")
    return [
        replace(
            record,
            name=f"{place:03d}-noise_variance={place}-partition=shards-local_steps={place}",
            schemes=schemes,
            config={**record.config, **dict.fromkeys(keys, f"value-{place % 3}")},
        )
        for place in range(runs)
    ]


def test_a_sweep_with_many_schemes_lists_its_keys_below_the_names_of_runs(finished: Path) -> None:
    records = sweep_of(read_runs([finished])[0])
    page = str(side_by_side_section(records))
    assert page.count('<span class="setting">') == len(records) * 5
    assert page.count('<th scope="col"') == 14  # run, twelve schemes, centralised
    assert 'class="cards results dense"' in page
    few = [replace(record, schemes=record.schemes[:3]) for record in records]
    assert str(side_by_side_section(few)).count('<th scope="col"') == 10
    assert "coding.<wbr>noise_<wbr>variance</th>" in str(side_by_side_section(few))


def test_the_configuration_of_many_runs_lists_the_values_that_occur(finished: Path) -> None:
    page = str(configuration_section(sweep_of(read_runs([finished])[0])))
    columns = re.findall(r"<th scope=\"col\"[^>]*>([^<]*)</th>", page)
    assert columns == ["key", "values in 12 runs", "", "values in 12 runs"]
    values = "<span>" + ", ".join(f"<code>value-{value}</code>" for value in range(3)) + "</span>"
    assert (
        f'<th scope="row"><mark>data.partition</mark></th><td class="" data-label="values in 12 runs">{values}</td>'
        in page
    )


def test_seeds_have_a_verdict_over_all_of_them(finished: Path) -> None:
    seeds = finished.parent / "seeds"
    for place in range(2):
        shutil.copytree(finished, seeds / f"seed-{place}")
    accuracy = {"mean": 0.75, "low": 0.7, "high": 0.8, "values": [0.74, 0.76]}
    scheme = {"scheme": "scfl", "title": "SCFL", "accuracy": accuracy}
    summary = {"seeds": [0, 1], "metric": "accuracy", "verdict": ["Coding pays."], "schemes": [scheme]}
    (seeds / "summary.json").write_text(json.dumps(summary))
    page = write_report([seeds]).read_text(encoding="utf-8")
    assert "Verdict over 2 seeds" in page
    assert "Coding pays." in page
    assert "70.00% to 80.00%" in page


def test_long_curves_are_thinned_and_the_page_says_so(finished: Path) -> None:
    header = "scheme,round,simulated_time_s,everything_charged_s,score,mean_arrivals,bytes_up\n"
    rows = "".join(f"scfl,{i},{i},{i},{i / 20000},1,0\n" for i in range(20_000))
    (finished / "curves/scfl.csv").write_text(header + rows)
    page = render_page(read_runs([finished]))
    curve = Outline(page).data["curves"][1]
    assert len(curve["round"]) <= 300
    assert (curve["round"][0], curve["round"][-1]) == (0, 19_999)
    assert "Curves of more than 300 points are thinned." in page


def test_a_large_fleet_fits_on_the_page(finished: Path) -> None:
    """Two hundred devices by 500 rounds, the most that a run keeps, with arrivals that change in every round."""
    details = json.loads((finished / "details.json").read_text())
    seen = ["10" * 250] * 200
    details["arrivals"] = [
        {"schemes": ["scfl"], "rounds": 500, "every_round": 1, "every_device": 5, "attendance": seen}
    ]
    (finished / "details.json").write_text(json.dumps(details))
    header = "scheme,round,simulated_time_s,everything_charged_s,score,mean_arrivals,bytes_up\n"
    (finished / "curves/scfl.csv").write_text(f"{header}scfl,500,1,1,0.5,1,0\n")
    page = render_page(read_runs([finished]))
    assert "Every 5th device is shown." in page
    assert len(page) < LARGEST_PAGE


def test_arrivals_of_rounds_to_come_are_not_shown(unfinished: Path) -> None:
    page = render_page(read_runs([unfinished]))
    shown = {len(a["data-seen"] or "") for a in Outline(page).of("svg") if "data-seen" in a}
    assert shown == {15}, "FedAvg is trained, and SCFL has the same arrivals"
    (unfinished / "curves/fedavg.csv").unlink()
    page = render_page(read_runs([unfinished]))
    assert {len(a["data-seen"] or "") for a in Outline(page).of("svg") if "data-seen" in a} == {6}


def test_a_page_that_cannot_be_written_is_refused(finished: Path) -> None:
    with pytest.raises(InputError, match=r"--out = .* cannot be written"):
        write_report([finished], finished / "no/such/folder.html")


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_colours_have_the_contrast_of_the_accessibility_guidelines() -> None:
    """WCAG 2.2, level AA: 4.5 for text and 3 for lines."""
    style = files("codedfl.report").joinpath("assets/page.css").read_text()
    themes = [
        dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root[^{]*{([^}]*)}", style)
    ]
    assert len(themes) == 2
    for theme in themes:
        for ground in ("card", "page", "soft"):
            for name in ("text", "muted"):
                assert contrast(theme[name], theme[ground]) >= 4.5, (name, ground)
        assert contrast(theme["accent"], theme["page"]) >= 4.5
        for name in ("good", "warn", "bad"):
            assert contrast(theme[name], theme[f"{name}-soft"]) >= 4.5, name
            assert contrast(theme[name], theme["card"]) >= 4.5, name
        for place in range(10):
            assert contrast(theme[f"c{place}"], theme["card"]) >= 3.0, place
