"""Options: one table of those that set a configuration field, and those that several commands share."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from codedfl.config import Config
    from codedfl.progress import Progress

KEYS: dict[str, tuple[str, Any]] = {
    "scheme": ("schemes", list[str]),
    "dataset": ("data.dataset", str),
    "target": ("data.target", list[str]),
    "device_column": ("data.device_column", str),
    "drop": ("data.drop", list[str]),
    "task": ("data.task", str),
    "devices": ("data.devices", int),
    "rounds": ("training.rounds", int),
    "total_time": ("training.total_time_s", float),
    "tau": ("training.local_steps", int),
    "coded_samples": ("coding.coded_samples", int),
    "noise_variance": ("coding.noise_variance", float),
    "label_noise_variance": ("coding.label_noise_variance", float),
    "clip_norm": ("coding.clip_norm", str),
    "epsilon": ("privacy.epsilon", float),
    "delta": ("privacy.delta", float),
    "threat_model": ("privacy.threat_model", str),
    "label_bound": ("privacy.label_bound", float),
    "label_center": ("privacy.label_center", float),
    "seed": ("seed", int),
    "data_dir": ("data.data_dir", Path),
    "trace": ("fleet.trace", Path),
}
"""Every option that sets a configuration field: its name, the field, and its type on the command line."""

PANELS = {
    "": "Schemes and seed",
    "data": "Data",
    "features": "Features",
    "fleet": "Devices and channel",
    "training": "Training",
    "coding": "Coded upload",
    "privacy": "Privacy",
    "incentive": "Incentives",
    "learning_rate": "Training",
}
"""Where help lists the options of each section."""

OF_TRAINING = (
    *("scheme", "dataset", "target", "device_column", "drop", "task", "devices", "rounds", "total_time", "tau"),
    *("epsilon", "delta", "threat_model", "label_bound", "label_center"),
    *("coded_samples", "noise_variance", "clip_norm", "seed", "data_dir", "trace"),
)
"""Options of commands that train schemes, in the order in which help shows them."""

NUMBER_OR_WORD = ("clip_norm",)
"""Options that are text on the command line because a word is possible instead of a number."""

DataDir = Annotated[
    Path | None, typer.Option(help="Folder that holds the named datasets.", show_default="$CODEDFL_DATA or ./data")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the results.", show_default="a new one in runs/")]


def _complete_key(incomplete: str) -> list[str]:
    """Return the fields that a shell offers after ``--set``."""
    from codedfl.config import Config, Section

    sections = {name: value for name, value in Config() if isinstance(value, Section)}
    keys = [f"{name}.{field}=" for name, section in sections.items() for field in type(section).model_fields]
    return [key for key in (*keys, "seed=") if key.startswith(incomplete)]


def _complete_scheme(incomplete: str) -> list[str]:
    from codedfl.schemes import SCHEMES

    return [name for name in SCHEMES if name.startswith(incomplete)]


def _complete_dataset(incomplete: str) -> list[str]:
    """Return the named datasets and, as the shell does not complete files by itself here, the files and folders."""
    from codedfl.data import list_datasets

    files = [f"{path}/" if path.is_dir() else str(path) for path in sorted(Path().glob(f"{incomplete}*"))]
    return [name for name in (*(status.name for status in list_datasets(None)), *files) if name.startswith(incomplete)]


COMPLETIONS: dict[str, Callable[[str], list[str]]] = {"scheme": _complete_scheme, "dataset": _complete_dataset}
"""What a shell offers for the values of options."""

_File = Annotated[Path | None, typer.Argument(help="A TOML file; defaults are used without one.", show_default=False)]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Set any other field; `codedfl config` lists them.",
        autocompletion=_complete_key,
    ),
]


@dataclass(frozen=True)
class Settings:
    """The configuration as given on the command line.

    Args:
        file: the TOML file, if any.
        overrides: fields set by options, ``--set`` last.
    """

    file: Path | None
    overrides: list[tuple[str, Any]]

    @property
    def empty(self) -> bool:
        """Whether nothing was given."""
        return self.file is None and not self.overrides

    @cached_property
    def _loaded(self) -> tuple[Config, dict[str, Any], bool]:
        """The configuration, values of the preset, and whether private schemes took the place of the default ones."""
        from codedfl.config import load_with_preset
        from codedfl.schemes import DEFAULT_SCHEMES, PRIVATE_SCHEMES

        config, preset = load_with_preset(self.file, self.overrides)
        # The configuration of an earlier run lists its schemes even if nobody chose them.
        overrides = dict(self.overrides)
        replaced = (
            bool(overrides.get("privacy.epsilon")) and "schemes" not in overrides and config.schemes == DEFAULT_SCHEMES
        )
        if replaced:
            config, _ = load_with_preset(self.file, [*self.overrides, ("schemes", PRIVATE_SCHEMES)])
        return config, preset, replaced

    def load(self) -> Config:
        """Return the configuration: defaults, then the preset of the dataset, the file, and the options."""
        return self._loaded[0]

    def tell_preset(self, progress: Progress) -> None:
        """Report what nobody asked for, one line each: values of the dataset's preset, and schemes that suit an epsilon."""
        config, preset, replaced = self._loaded
        if replaced:
            progress.say(
                f"private schemes in place of the default ones, as --epsilon is given: {', '.join(config.schemes)}"
            )
        if preset:
            values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in preset.items())
            progress.say(f"preset of {config.data.dataset}: {values}")


def configurable(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a configuration file, ``--set`` and options of `KEYS`; it receives `Settings` as its first argument.

    Args:
        names: keys of `KEYS`, in the order in which help shows them.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def wrapped(config: Path | None = None, set_: list[str] | None = None, **options: Any) -> None:
            from codedfl.config import parse_override

            values = {KEYS[name][0]: _number_or_word(name, options.pop(name)) for name in names}
            overrides = [
                (key, str(value) if isinstance(value, Path) else value)
                for key, value in values.items()
                if value is not None
            ]
            command(Settings(config, overrides + [parse_override(text) for text in set_ or ()]), **options)

        options = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        shared = [_parameter("config", _File)]
        shared += [_parameter(name, Annotated[KEYS[name][1] | None, _option(name)]) for name in names]
        parameters = [*shared, *options, _parameter("set_", _Set)]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {item.name: item.annotation for item in parameters}
        return wrapped

    return decorate


def _option(name: str) -> Any:
    """Return an option of `KEYS`, in the panel of its section."""
    section, _, _ = KEYS[name][0].rpartition(".")
    return typer.Option(rich_help_panel=PANELS[section], autocompletion=COMPLETIONS.get(name))


def _number_or_word(name: str, value: Any) -> Any:
    """Return the value of an option that takes a number or a word as a number, if it is one."""
    if name in NUMBER_OR_WORD and value is not None:
        with suppress(ValueError):
            return float(value)
    return value


def _parameter(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


class ConfigurableCommand(TyperCommand):
    """A command whose help takes texts and defaults from the schema, which is slow to import and needed only there."""

    def format_help(self, *arguments: Any) -> None:
        """Fill in the help of the options of `KEYS`, then write it."""
        from codedfl.config import Config

        for parameter in self.params:
            if parameter.name in KEYS and not getattr(parameter, "help", None):
                *sections, field = KEYS[parameter.name][0].split(".")
                section: Any = getattr(Config(), sections[0]) if sections else Config()
                text = str(type(section).model_fields[field].description)
                vars(parameter).update(
                    help=f"{text[0].upper()}{text[1:]}.", show_default=_shown(getattr(section, field))
                )
        super().format_help(*arguments)


def _shown(value: object) -> str | bool:
    """Return a default as help shows it; False to hide it."""
    if value in ("", ()):
        return False
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def refusing_overflow(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command end in a one-sentence error if its numbers overflow."""

    @wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> None:
        import numpy as np

        with np.errstate(over="raise", invalid="raise", divide="raise"):
            command(*arguments, **options)

    return wrapped
