"""Configuration: every field with its default, its range and one line of explanation, read from and written to TOML."""

from codedfl.config._files import load_config, load_with_preset, parse_config, parse_override, to_toml
from codedfl.config._presets import preset_of
from codedfl.config._schema import Config, DataConfig, FeaturesConfig, IncentiveConfig, Section

__all__ = [
    "Config",
    "DataConfig",
    "FeaturesConfig",
    "IncentiveConfig",
    "Section",
    "load_config",
    "load_with_preset",
    "parse_config",
    "parse_override",
    "preset_of",
    "to_toml",
]
