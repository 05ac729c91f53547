"""Datasets and users' own files, feature maps, partitions, and the federation that they make."""

from __future__ import annotations

from codedfl.data._dataset import Dataset, Task, require_targets
from codedfl.data._features import FeatureMap, MapKind, Scaling, fit_feature_map
from codedfl.data._federation import DeviceSummary, Federation, build_federation
from codedfl.data._loading import is_file_name, load_dataset
from codedfl.data._memmap import is_federation_folder, open_federation, save_federation
from codedfl.data._npz import read_npz_tables
from codedfl.data._partition import (
    Partition,
    PartitionKind,
    partition,
    partition_by_column,
    partition_dirichlet,
    partition_iid,
    partition_shards,
)
from codedfl.data._registry import DatasetStatus, list_datasets
from codedfl.data._tabular import Columns, Table, read_frame
from codedfl.data._targets import TargetEncoding, TaskChoice

__all__ = [
    "Columns",
    "Dataset",
    "DatasetStatus",
    "DeviceSummary",
    "FeatureMap",
    "Federation",
    "MapKind",
    "Partition",
    "PartitionKind",
    "Scaling",
    "Table",
    "TargetEncoding",
    "Task",
    "TaskChoice",
    "build_federation",
    "fit_feature_map",
    "is_federation_folder",
    "is_file_name",
    "list_datasets",
    "load_dataset",
    "open_federation",
    "partition",
    "partition_by_column",
    "partition_dirichlet",
    "partition_iid",
    "partition_shards",
    "read_frame",
    "read_npz_tables",
    "require_targets",
    "save_federation",
]
