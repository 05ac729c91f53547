"""``codedfl config``, ``codedfl datasets`` and ``codedfl schemes``: what there is to choose from."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console

from codedfl.cli.options import DataDir, Json, Settings, configurable


@configurable("dataset")
def config(settings: Settings, *, json_: Json = False) -> None:
    """Print a full configuration as TOML, with a comment for every field: the defaults, or those of a dataset or a file.

    Example: codedfl config --dataset mnist > mine.toml
    """
    from codedfl.config import to_toml

    loaded = settings.load()
    if json_:
        print(json.dumps(loaded.model_dump(mode="json")))
    else:
        print(to_toml(loaded), end="")


def datasets(data_dir: DataDir = None, json_: Json = False) -> None:
    """List the named datasets, whether they are available, and where codedfl looks for them.

    Example: codedfl datasets --data-dir ~/data
    """
    from codedfl.cli.tables import datasets_table
    from codedfl.data import list_datasets

    statuses = list_datasets(data_dir)
    if json_:
        print(json.dumps([asdict(status) for status in statuses]))
    else:
        Console().print(datasets_table(statuses))


def schemes(json_: Json = False) -> None:
    """List the schemes: what each uploads, computes and returns.

    Example: codedfl schemes
    """
    from codedfl.cli.tables import schemes_json, schemes_table

    if json_:
        print(json.dumps(schemes_json()))
    else:
        Console().print(schemes_table())
