"""``codedfl privacy``: budgets planned without data."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer
from rich.console import Console

from codedfl.cli.options import Json, refusing_overflow

Adjacency = Literal["add-remove", "remove", "add", "replace"]  # as in codedfl.privacy, which is slow to import


@refusing_overflow
def privacy(
    coded_samples: Annotated[int | None, typer.Option(help="Coded samples c.", show_default=False)] = None,
    noise_variance: Annotated[float | None, typer.Option(help="Noise variance per device.", show_default=False)] = None,
    epsilon: Annotated[float | None, typer.Option(help="Target epsilon, in nats.", show_default=False)] = None,
    delta: Annotated[float | None, typer.Option(help="Delta.", show_default=False)] = None,
    norm_bound: Annotated[float, typer.Option(help="Largest norm B of a sample's features.")] = 1.0,
    label_noise_variance: Annotated[
        float | None,
        typer.Option(
            help="Noise variance on the coded labels, to include them in the guarantee.", show_default="features alone"
        ),
    ] = None,
    label_norm_bound: Annotated[float, typer.Option(help="Largest norm of a sample's labels; 1 for one-hot.")] = 1.0,
    adjacency: Annotated[Adjacency, typer.Option(help="Definition of neighbouring datasets.")] = "add-remove",
    devices_in_sum: Annotated[
        int | None,
        typer.Option(
            help="Number of devices with this noise, if the server sees only the sum.",
            show_default="each upload is seen",
        ),
    ] = None,
    updates: Annotated[
        int | None,
        typer.Option(help="Number of private updates sent during training.", show_default="the upload alone"),
    ] = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option(
            help="Probability of each row to be in an update's batch; with --updates.", show_default="1: all rows"
        ),
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(
            help="Noise of an update over its clip norm; with --updates, in place of --epsilon.", show_default=False
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Compute the privacy budget of a coded upload: give three of --coded-samples, --noise-variance, --epsilon, --delta.

    With --updates: that of private updates, and of an upload besides; give --delta and --epsilon or --noise-multiplier.

    Example: codedfl privacy --coded-samples 1000 --epsilon 4 --delta 1e-5
    """
    from codedfl.cli.budget_table import budget_table, updates_table
    from codedfl.errors import InputError
    from codedfl.files import plain
    from codedfl.privacy import PrivacyAccountant

    if updates is not None:
        from codedfl.cli.updates_budget import plan_updates

        if adjacency != "add-remove":
            raise InputError(f"adjacency = {adjacency!r} is not offered with updates: leave it at add-remove.")
        budget = plan_updates(
            updates=updates,
            sampling_rate=1.0 if sampling_rate is None else sampling_rate,
            epsilon=epsilon,
            delta=delta,
            noise_multiplier=noise_multiplier,
            coded_samples=coded_samples,
            noise_variance=noise_variance,
            norm_bound=norm_bound,
            label_noise_variance=label_noise_variance,
            label_norm_bound=label_norm_bound,
            devices_in_sum=devices_in_sum,
        )
        if json_:
            print(json.dumps(plain(budget.as_dict())))
        else:
            Console().print(updates_table(budget))
        return
    for name, value in (("sampling_rate", sampling_rate), ("noise_multiplier", noise_multiplier)):
        if value is not None:
            raise InputError(f"{name} = {value} is about updates: give their number with --updates.")
    accountant = PrivacyAccountant(
        coded_samples=coded_samples,
        noise_variance=noise_variance,
        epsilon=epsilon,
        delta=delta,
        norm_bound=norm_bound,
        label_noise_variance=label_noise_variance,
        label_norm_bound=label_norm_bound,
        adjacency=adjacency,
        devices_in_sum=devices_in_sum,
    )
    if json_:
        print(json.dumps(plain(accountant.as_dict())))
    else:
        Console().print(budget_table(accountant))
