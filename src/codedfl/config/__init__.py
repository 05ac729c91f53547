"""Configuration: every field with its default, its range and one line of explanation, read from and written to TOML."""

from codedfl.config._files import load_config, load_with_preset, parse_config, parse_override, parse_section, to_toml
from codedfl.config._presets import preset_of
from codedfl.config._schema import (
    Config,
    Count,
    CountOrZero,
    DataConfig,
    FeaturesConfig,
    IncentiveConfig,
    NonNegative,
    Positive,
    Section,
    Text,
    Variance,
)
from codedfl.config._scheme_options import MAX_COUNT, option_defaults
from codedfl.config._toml import option_lines, read_toml, section_lines

__all__ = [
    "MAX_COUNT",
    "Config",
    "Count",
    "CountOrZero",
    "DataConfig",
    "FeaturesConfig",
    "IncentiveConfig",
    "NonNegative",
    "Positive",
    "Section",
    "Text",
    "Variance",
    "load_config",
    "load_with_preset",
    "option_defaults",
    "option_lines",
    "parse_config",
    "parse_override",
    "parse_section",
    "preset_of",
    "read_toml",
    "section_lines",
    "to_toml",
]
