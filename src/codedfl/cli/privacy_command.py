"""``codedfl privacy``: budgets of a coded upload and of private updates, planned without data."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl._messages import number
from codedfl.cli.options import Json, refusing_overflow
from codedfl.errors import InputError

if TYPE_CHECKING:
    from codedfl.privacy import PrivacyAccountant

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
    from codedfl.errors import InputError
    from codedfl.files import plain
    from codedfl.privacy import PrivacyAccountant

    if updates is not None:
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


@dataclass(frozen=True)
class UpdatesBudget:
    """Updates of one device, or sums of updates, each with Gaussian noise.

    Args:
        updates: ``K``.
        sampling_rate: ``q``.
        epsilon: of the updates and the upload together; infinite without noise.
        delta: of the updates and the upload together.
        noise_multiplier: ``z``, standard deviation of the noise in what the server sees of one update, over the clip norm.
        upload: a coded upload that is released besides, with its own epsilon at the same delta.
        devices_in_sum: number of devices whose noise adds up, if the server sees only sums.
    """

    updates: int
    sampling_rate: float
    epsilon: float
    delta: float
    noise_multiplier: float
    upload: PrivacyAccountant | None
    devices_in_sum: int | None

    @property
    def noise_multiplier_per_device(self) -> float | None:
        """``z / sqrt(n)``, the share of each of ``n`` devices in the noise of a sum."""
        return None if self.devices_in_sum is None else self.noise_multiplier / math.sqrt(self.devices_in_sum)

    @property
    def threat_model(self) -> str:
        """What the server sees."""
        return "each message" if self.devices_in_sum is None else "sums only"

    @property
    def covers(self) -> str:
        """What the guarantee covers, in a sentence."""
        what = f"{self.updates} update{'s' if self.updates > 1 else ''}"
        batches = (
            "all rows"
            if self.sampling_rate == 1
            else f"a fresh Poisson sample of the rows at rate {self.sampling_rate:g}"
        )
        text = f"one sample more or less, in {what} of gradients clipped per sample, each from {batches}"
        if self.upload is not None:
            labels = "alone (no labels may be coded with them)"
            if self.upload.label_noise_variance is not None:
                labels = "and labels"
            text += (
                f", together with one upload of {self.upload.coded_samples} coded samples, features of norm "
                f"{self.upload.norm_bound:g} or less {labels}"
            )
        if self.devices_in_sum is not None:
            text += f"; only sums with the noise of {self.devices_in_sum} devices that do not help the server are seen"
        return text

    def as_dict(self) -> dict[str, int | float | str | None]:
        """Return the budget as a dictionary for reports; an upload adds its keys, a sum the share of each device."""
        sums: dict[str, int | float | str | None] = {}
        if self.devices_in_sum is not None:
            sums = {
                "devices_in_sum": self.devices_in_sum,
                "noise_multiplier_per_device": self.noise_multiplier_per_device,
            }
        coded: dict[str, int | float | str | None] = {}
        if self.upload is not None:
            coded = {
                "coded_samples": self.upload.coded_samples,
                "noise_variance": self.upload.noise_variance,
                "label_noise_variance": self.upload.label_noise_variance,
                "norm_bound": self.upload.norm_bound,
                "label_norm_bound": self.upload.label_norm_bound,
                "mi_dp_bits": self.upload.mi_dp_bits,
                "epsilon_of_upload": self.upload.epsilon,
            }
        return {
            "updates": self.updates,
            "sampling_rate": self.sampling_rate,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "noise_multiplier": self.noise_multiplier,
            **sums,
            **coded,
            "threat_model": self.threat_model,
            "adjacency": "add-remove",
            "covers": self.covers,
        }


def plan_updates(
    *,
    updates: int,
    sampling_rate: float,
    epsilon: float | None,
    delta: float | None,
    noise_multiplier: float | None,
    coded_samples: int | None,
    noise_variance: float | None,
    norm_bound: float,
    label_noise_variance: float | None,
    label_norm_bound: float,
    devices_in_sum: int | None,
) -> UpdatesBudget:
    """Solve for the noise multiplier or for epsilon, whichever is missing.

    Args:
        updates: see :class:`UpdatesBudget`.
        sampling_rate: see :class:`UpdatesBudget`.
        epsilon: None to solve for it.
        delta: must be given.
        noise_multiplier: None to solve for it.
        coded_samples: of an upload, if there is one; the other arguments are those of ``PrivacyAccountant``.
        noise_variance: of the upload.
        norm_bound: of the upload.
        label_noise_variance: of the upload.
        label_norm_bound: of the upload.
        devices_in_sum: of the upload and of the updates, if the server sees only sums.

    Raises:
        InputError: if numbers are missing, too many or out of range, or the upload leaves nothing of the budget.
    """
    from codedfl._validation import require_at_least, require_non_negative
    from codedfl.privacy import CodedMechanism, GaussianMechanism, PrivacyAccountant, epsilon_of, noise_multiplier_for

    if delta is None:
        raise InputError("delta is missing: give --delta with --updates.")
    if (epsilon is None) == (noise_multiplier is None):
        both = epsilon is not None
        raise InputError(
            f"epsilon and noise_multiplier are {'both given' if both else 'both missing'}: give one of them with --updates, "
            "and the other is solved for."
        )
    require_at_least("updates", updates, 1)
    if devices_in_sum is not None:
        require_at_least("devices_in_sum", devices_in_sum, 1)
    upload = None
    if coded_samples is not None and noise_variance is not None:
        upload = PrivacyAccountant(
            coded_samples=coded_samples,
            noise_variance=noise_variance,
            delta=delta,
            norm_bound=norm_bound,
            label_noise_variance=label_noise_variance,
            label_norm_bound=label_norm_bound,
            devices_in_sum=devices_in_sum,
        )
    elif (coded_samples, noise_variance, label_noise_variance) != (None, None, None):
        raise InputError(
            "coded_samples and noise_variance describe an upload only together: give both with --updates, or neither."
        )
    besides = [] if upload is None else [CodedMechanism(upload.coded_samples, upload.signal_to_noise)]
    if epsilon is not None:
        multiplier = noise_multiplier_for(epsilon, delta, updates=updates, sampling_rate=sampling_rate, besides=besides)
        return UpdatesBudget(updates, sampling_rate, epsilon, delta, multiplier, upload, devices_in_sum)
    noise = 0.0 if noise_multiplier is None else noise_multiplier
    require_non_negative("noise_multiplier", noise)
    spent = epsilon_of([GaussianMechanism(noise, updates, sampling_rate), *besides], delta)
    return UpdatesBudget(updates, sampling_rate, spent, delta, noise, upload, devices_in_sum)


def budget_table(accountant: PrivacyAccountant) -> Table:
    """Return a table of a privacy budget and its meaning."""
    rows = {
        "coded samples": str(accountant.coded_samples),
        "noise variance": f"{accountant.noise_variance:.6g}",
        "epsilon": number(accountant.epsilon),
        "delta": f"{accountant.delta:.4g}",
        "norm bound": f"{accountant.norm_bound:g}",
        "MI-DP, all data": f"{number(accountant.mi_dp_bits)} bits for one entry of the features",
        "threat model": accountant.threat_model,
        "covers": accountant.covers,
    }
    return _table(rows)


def updates_table(budget: UpdatesBudget) -> Table:
    """Return a table of the budget of private updates and its meaning."""
    rows = {
        "updates": str(budget.updates),
        "sampling rate": f"{budget.sampling_rate:g}",
        "epsilon": number(budget.epsilon),
        "delta": f"{budget.delta:.4g}",
        "noise multiplier": f"{budget.noise_multiplier:.6g} (noise over clip norm, per update)",
    }
    if budget.noise_multiplier_per_device is not None:
        rows["of each device"] = f"{budget.noise_multiplier_per_device:.6g} (share of {budget.devices_in_sum} devices)"
    if budget.upload is not None:
        rows["coded samples"] = str(budget.upload.coded_samples)
        rows["noise variance"] = f"{budget.upload.noise_variance:.6g}"
        rows["upload alone"] = f"epsilon {number(budget.upload.epsilon)}"
    return _table({**rows, "threat model": budget.threat_model, "covers": budget.covers})


def _table(rows: dict[str, str]) -> Table:
    from codedfl.cli.tables import new_table

    table = new_table(header=False)
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table
