"""Who arrived when: devices by rounds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from codedfl.report._html import Html, folded, joined, markup, section
from codedfl.report._record import Record
from codedfl.results import number, share


def attendance_section(record: Record, prefix: str = "") -> Html:
    """Return a map of every group of schemes with the same arrivals; the first is shown, the others are folded."""
    titles = {str(scheme["scheme"]): str(scheme["title"]) for scheme in record.schemes}
    done = {curve.scheme: int(curve.round[-1]) for curve in record.curves if curve.round}
    maps: list[Html] = []
    for place, group in enumerate(record.details.get("arrivals", ())):
        # The arrivals of a simulation are known before it: those of rounds to come are not shown.
        rounds = max((done.get(name, 0) for name in group["schemes"]), default=0)
        if not rounds:
            continue
        names = ", ".join(titles.get(name, name) for name in group["schemes"])
        drawn = _map(record.names, group, min(rounds, group["rounds"]), f"Arrivals of {names}")
        maps.append(folded(f"{prefix}arrivals-{place}", names, drawn, opened=not maps))
    explained = markup(
        '<p class="hint">{}</p>', "A filled cell is an update that arrived before the deadline of its round."
    )
    return section(f"{prefix}arrivals", "Who arrived when", explained, *maps) if maps else Html()


def _map(names: Sequence[str], group: Mapping[str, Any], rounds: int, caption: str) -> Html:
    every_round, every_device = int(group["every_round"]), int(group["every_device"])
    cells = -(-rounds // every_round)
    rows = joined(
        _row(
            names[place * every_device] if place * every_device < len(names) else str(place), seen[:cells], every_round
        )
        for place, seen in enumerate(group["attendance"])
    )
    thinned = [f"every {number(every_round)}th round"] * (every_round > 1)
    thinned += [f"every {number(every_device)}th device"] * (every_device > 1)
    remark = markup('<p class="hint">{} is shown.</p>', " and ".join(thinned).capitalize()) if thinned else Html()
    ticks = joined(markup("<span>{}</span>", number(1 + round(part * (rounds - 1) / 4))) for part in range(5))
    return markup(
        '<figure class="heat" aria-label="{}">{}<div class="rows">{}'
        '<span class="name">round</span><span class="ticks">{}</span><span></span></div></figure>\n',
        caption,
        remark,
        rows,
        ticks,
    )


def _row(name: str, seen: str, every_round: int) -> Html:
    asked, arrived = len(seen) - seen.count("-"), seen.count("1")
    words = f"{name}: arrived in {arrived} of {asked} rounds" + (" shown" if every_round > 1 else "")
    runs = "".join(f"M{run.start()} .5h{run.end() - run.start()}" for run in re.finditer("1+", seen))
    idle = "".join(f"M{run.start()} .5h{run.end() - run.start()}" for run in re.finditer("-+", seen))
    return markup(
        '<span class="name" title="{name}">{name}</span><svg viewBox="0 0 {width} 1" preserveAspectRatio="none" role="img" '
        'aria-label="{words}" data-seen="{seen}" data-every="{every}"><path class="arrived" d="{runs}"/>'
        '<path class="idle" d="{idle}"/></svg><span class="value">{share}</span>',
        name=name,
        width=max(len(seen), 1),
        words=words,
        seen=seen,
        every=every_round,
        runs=runs,
        idle=idle,
        share=share(arrived / asked) if asked else "not asked",
    )
