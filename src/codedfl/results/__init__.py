"""Results: what a run says.

`Comparison` is what a run returns. Its `verdict` is what it says in words, `summarise` the same in numbers, `notes_on` what to
know before trusting it, and `guarantee_of_run` what may be claimed about privacy. `VIEWS` declares the columns of every table,
notebook, page and CSV file.

Example:
    >>> from codedfl.results import columns_of
    >>> [column.title for column in columns_of("notebook", "accuracy", private=True)][-2:]
    ['epsilon', 'covers']
"""

from codedfl.results._columns import (
    CENTRALISED,
    EPSILON,
    SCHEME,
    SCORE,
    SHARES,
    TO_95,
    TO_95_CHARGED,
    VIEWS,
    Column,
    ResultTable,
    Row,
    best_schemes,
    columns_of,
    keeping,
)
from codedfl.results._comparison import Comparison
from codedfl.results._display import curves_png
from codedfl.results._evidence import (
    Difference,
    Evidence,
    SchemeEvidence,
    difference_over_rows,
    difference_over_seeds,
    evidence_of,
    half_width,
    row_scores,
)
from codedfl.results._formats import NOTHING, bound, in_megabytes, is_number, number, score, seconds, share, size
from codedfl.results._notes import notes_on
from codedfl.results._privacy import guarantee_of_run, privacy_of, releases_of, upload_privacy
from codedfl.results._rows import summarise_result, table_of, time_to_share
from codedfl.results._seeds import SeedRuns, over_seeds, table_over_seeds
from codedfl.results._summary import summarise
from codedfl.results._sweeps import Axes, SweepResults
from codedfl.results._verdict import Verdict, trend_of, verdict

__all__ = [
    "CENTRALISED",
    "EPSILON",
    "NOTHING",
    "SCHEME",
    "SCORE",
    "SHARES",
    "TO_95",
    "TO_95_CHARGED",
    "VIEWS",
    "Axes",
    "Column",
    "Comparison",
    "Difference",
    "Evidence",
    "ResultTable",
    "Row",
    "SchemeEvidence",
    "SeedRuns",
    "SweepResults",
    "Verdict",
    "best_schemes",
    "bound",
    "columns_of",
    "curves_png",
    "difference_over_rows",
    "difference_over_seeds",
    "evidence_of",
    "guarantee_of_run",
    "half_width",
    "in_megabytes",
    "is_number",
    "keeping",
    "notes_on",
    "number",
    "over_seeds",
    "privacy_of",
    "releases_of",
    "row_scores",
    "score",
    "seconds",
    "share",
    "size",
    "summarise",
    "summarise_result",
    "table_of",
    "table_over_seeds",
    "time_to_share",
    "trend_of",
    "upload_privacy",
    "verdict",
]
