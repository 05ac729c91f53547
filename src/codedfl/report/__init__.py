"""Reports: one self-contained HTML page of a run, or of several side by side.

``write_report(["runs/first"])`` writes the page of a run folder; a `Record` can come from elsewhere too.

Example:
    >>> from pathlib import Path
    >>> from codedfl.report import Curve, Record, render_page
    >>> curve = Curve("scfl", "SCFL", [0, 10], [0.0, 10.0], [5.0, 15.0], [0.1, 0.9])
    >>> record = Record("first", Path("first"), "run", "completed", "", "digits", "accuracy", None, (curve,), [], [])
    >>> render_page([record])[:15]
    '<!doctype html>'
"""

from codedfl.report._finding import read_runs
from codedfl.report._page import render_page, write_report
from codedfl.report._record import Curve, Record
from codedfl.report._watch import Watch

__all__ = ["Curve", "Record", "Watch", "read_runs", "render_page", "write_report"]
