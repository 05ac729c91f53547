"""The command line."""

from __future__ import annotations

import sys

from codedfl.errors import InputError


def main() -> None:
    """Run the command line; bad input ends in one sentence and exit code 2."""
    from codedfl.cli.app import app

    try:
        app()
    except InputError as error:
        print(f"codedfl: {error}", file=sys.stderr)
        sys.exit(2)
    except MemoryError as error:
        print(
            f"codedfl: out of memory ({error}): lower features.dimension or coding.coded_samples.".replace(" ()", ""),
            file=sys.stderr,
        )
        sys.exit(2)
